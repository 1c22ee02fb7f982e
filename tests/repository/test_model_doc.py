"""docs/model.md names tests and modules: each must exist, or the table has drifted."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "model.md").read_text()


def test_every_test_that_the_model_table_names_exists():
    named = set(re.findall(r"`(test_\w+)`", TABLE))
    written = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    assert len(named) > 40
    assert named - written == set()


def test_every_module_that_the_model_table_names_exists():
    named = set(re.findall(r"`([\w/]+\.py|[\w]+/)`", TABLE))
    assert named
    assert [name for name in sorted(named) if not (ROOT / "coordinator_model" / name).exists()] == []
