"""What the repository promises of its own code: short functions and names, modules of one idea, a whole wheel."""

import ast
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("coordinator_model", "streaming", "dashboards")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
FUNCTION_LINES = 50
USUAL_FUNCTION_LINES = 25
MODULE_LINES = 560
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TEST_NAME_CHARACTERS = 80
IMPORT_EACH_FIRST = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    for made in [module for module in sys.modules if module.startswith("coordinator_model")]:
        del sys.modules[made]
"""


def name(path):
    return str(path.relative_to(ROOT))


def lines_of_functions(path):
    functions = (
        n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [(f.name, f.end_lineno - f.lineno + 1) for f in functions]


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_functions_fit_a_screen(path):
    assert [function for function, lines in lines_of_functions(path) if lines > FUNCTION_LINES] == []


def test_nine_functions_of_ten_are_short():
    lines = sorted(lines for path in MODULES for _, lines in lines_of_functions(path))
    assert lines[len(lines) * 9 // 10] <= USUAL_FUNCTION_LINES


def test_names_of_tests_are_short():
    """A name says what is tested; what it takes to say more goes into the docstring."""
    names = {
        node.name: name(path)
        for path in TESTS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }
    assert len(names) > 1_000
    assert {test: path for test, path in names.items() if len(test) > TEST_NAME_CHARACTERS} == {}


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_is_one_idea_and_says_which(path):
    source = path.read_text()
    assert source.count("\n") <= MODULE_LINES
    assert ast.get_docstring(ast.parse(source)), "no docstring"


@pytest.mark.parametrize("path", [p for p in MODULES if p.is_relative_to(ROOT / "coordinator_model")], ids=name)
def test_the_core_imports_the_standard_library_and_itself_only(path):
    """import-linter forbids what it is told of; a package that nobody thought of is forbidden here."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    imported = {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    imported |= {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}
    assert {n.split(".")[0] for n in imported} <= {"coordinator_model", *sys.stdlib_module_names}


def test_every_module_of_the_core_can_be_imported_first():
    """Circles between modules show only in the order in which somebody happens to import them."""
    names = [name(p).removesuffix(".py").removesuffix("/__init__").replace("/", ".") for p in MODULES]
    core = [n for n in names if n.startswith("coordinator_model")]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH_FIRST, *core], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_slow_tests_lie_where_make_test_looks_for_them():
    marked = re.compile(r"mark\.(e2e|spark)\b")
    slow = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.name != "test_tidy.py" and marked.search(path.read_text())
    ]
    makefile = (ROOT / "Makefile").read_text()
    real = re.search(r"real=\((.*?)\)", makefile)[1].split()
    assert [name(path) for path in slow if not name(path).startswith(tuple(real))] == []


def test_the_wheel_holds_the_packages_and_nothing_of_the_tests(tmp_path):
    build = "import sys, hatchling.build; print(hatchling.build.build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    held = zipfile.ZipFile(wheel).namelist()
    tops = {path.partition("/")[0] for path in held}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    assert {name(path) for path in MODULES} <= set(held)
    assert {"coordinator_model/py.typed", "dashboards/rendered/fleet.json"} <= set(held)
    assert {f"streaming/serve/rules/{path.name}" for path in (ROOT / "docs" / "rules").iterdir()} <= set(held)
    assert any(path.endswith("entry_points.txt") for path in held)
