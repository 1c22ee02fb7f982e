"""How numbers and durations stand in texts for people, also at one, and at the edges."""

import ast
import re
from pathlib import Path

import pytest

from coordinator_model.wording import counted, seconds

RULES = sorted((Path(__file__).parents[2] / "coordinator_model" / "rules").glob("*.py"))


@pytest.mark.parametrize(("number", "text"), [(0, "0 members"), (1, "1 member"), (2_000, "2,000 members")])
def test_a_noun_is_in_the_singular_only_for_one(number, text):
    assert counted(number, "member") == text


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [(0, "0 s"), (250, "0.25 s"), (41_349, "41.3 s"), (99_999, "100 s"), (100_000, "100 s"), (1_800_000, "1,800 s")],
)
def test_a_duration_has_three_digits_or_whole_seconds(span_ms, text):
    assert seconds(span_ms) == text


def texts(path):
    """The f-strings of a module, with `{}` for each value."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_no_summary_writes_milliseconds_or_counts_without_a_singular(path):
    """`counted` and `seconds` do both."""
    wrong = re.compile(r"\{\} (ms|s|times|members|partitions|generations|facts)\b")
    assert [text for text in texts(path) if wrong.search(text)] == []
