"""docs/model.md and docs/model-modern.md name tests and code: each must exist, or the table has drifted."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in ("model", "model-modern")}
HEADS = ("behaviour", "fact", "what the rule must tell", "what comes")
WRITTEN = {
    name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text())
}


def code():
    """All that we have written, in one text."""
    paths = (path for package in ("coordinator_model", "streaming") for path in (ROOT / package).rglob("*.py"))
    return "\n".join(path.read_text() for path in paths)


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_the_model_table_names_exists(page):
    named = set(re.findall(r"`(test_\w+)`", PAGES[page]))
    assert len(named) > 40
    assert named - WRITTEN == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_module_that_the_model_table_names_exists(page):
    named = set(re.findall(r"`([\w/]+\.py|[\w]+/)`", PAGES[page])) - {"test_captures.py"}
    assert named
    places = (ROOT, ROOT / "coordinator_model", ROOT / "coordinator_model" / "replica")
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_every_function_that_the_model_table_names_exists():
    named = {name for page in PAGES.values() for name in re.findall(r"`[A-Za-z_]+\.(\w+)`", page)} - {"py"}
    text = code()
    assert len(named) > 10
    assert [
        name for name in sorted(named) if not re.search(rf"(def|class) {name}\b|^{name}\b", text, re.MULTILINE)
    ] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_row_names_code_and_test_or_says_why_there_is_none(page):
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in PAGES[page].splitlines() if line.startswith("|")
    ]
    facts = [cells for cells in rows if len(cells) == 3 and cells[0] not in HEADS and "---" not in cells[0]]
    assert len(facts) > 30
    told = ("test_", "tests/", "not ")
    assert [cells[0] for cells in facts if not any(word in cell for cell in cells[1:] for word in told)] == []
