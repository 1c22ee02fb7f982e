"""What people are told to install can be installed: nothing is published, so every advice starts from a checkout."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TOLD = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "streaming").rglob("*.py"))]


@pytest.mark.parametrize("path", TOLD, ids=lambda path: str(path.relative_to(ROOT)))
def test_nobody_is_sent_to_a_package_index(path):
    text = path.read_text()
    assert not re.search(r"kafka-group-monitor\[|install '?kafka-group-monitor|DISTRIBUTION}\[", text)
    named = re.findall(r"how_to_install\(['\"](\w+)['\"]\)|pip install '\.\[(\w+)\]'", text)
    assert {extra for pair in named for extra in pair if extra} <= EXTRAS.keys()
