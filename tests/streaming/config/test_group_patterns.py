"""Patterns of `[[groups]]` and the ids that strangers choose: right, and quick whatever the two are."""

import pickle
import re
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_model.thresholds import Thresholds
from streaming.config.group_patterns import CACHED_CHARACTERS, CACHED_IDS, GroupPatterns, GroupThresholds
from streaming.config.settings import ConfigError, Settings, load

LONGEST = 32_767
HOSTILE = [
    (".*-.*-prod", "-" * LONGEST),
    (".*-.*-.*-.*-prod", "-" * LONGEST),
    ("(a+)+b", "a" * LONGEST),
    ("(a|aa)+b", "a" * LONGEST),
    ("(.*,)*x", "," * LONGEST),
    (r"([\w.]+-?)+\.prod", "a" * LONGEST),
    ("(a?){500}a{500}", "a" * LONGEST),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("pattern", "group"), HOSTILE)
def test_no_id_takes_long(pattern, group):
    """13.5 s for one id; or for ever, with a pattern that repeats a repetition."""
    settings = Settings.model_validate({"groups": ({"pattern": pattern, "mode": "off"},) * 20})
    began_s = time.monotonic()
    assert settings.policy_for(group).mode == "notify"
    assert settings.group_thresholds()(group) is None
    assert time.monotonic() - began_s < 5


@pytest.mark.parametrize(
    ("pattern", "group", "matches"),
    [
        ("orders", "orders", True),
        ("orders", "orders-2", False),
        ("orders", "my-orders", False),
        ("orders|orders-.*", "orders-2", True),
        ("checkout-.*", "checkout-\n\u2028\x85\x00x", True),  # a line break hides nobody
        ("checkout-.*", "checkout-\ud800", True),
        (r"team-(a|b)-\d+", "team-b-12", True),
        ("(?i)ORDERS", "orders", True),
        ("", "", True),
    ],
)
def test_a_pattern_has_to_match_the_whole_id(pattern, group, matches):
    assert GroupPatterns([pattern]).first(group) == (0 if matches else None)


def test_the_first_that_matches_counts():
    patterns = GroupPatterns(["billing-old", "billing-.*", ".*-old"])
    assert [patterns.first(group) for group in ("billing-old", "billing-x", "shop-old", "shop")] == [0, 1, 2, None]


PARTS = st.sampled_from(["a", "b", "-", "ab", ".*", "a?", "[a-c]", "(a|b)", "(ab)+", "b{2}", r"\d", "."])


@given(st.lists(PARTS, max_size=6).map("".join), st.text("ab-1", max_size=12))
def test_it_agrees_with_pythons_own_engine(pattern, group):
    assert (GroupPatterns([pattern]).first(group) is not None) == bool(re.fullmatch(pattern, group, re.DOTALL))


@pytest.mark.parametrize("pattern", ["(?!test-).*", "(?<=a)b", r"(a)\1", "(?>a)", "a{5000}", "(" * 2_000, "\\"])
def test_what_would_take_long_is_refused_with_the_reason(tmp_path, pattern):
    path = tmp_path / "monitor.toml"
    path.write_text(f"[[groups]]\npattern = '''{pattern}'''\n")
    with pytest.raises(ConfigError, match=r"monitor\.toml:2: .*not a regular expression of RE2: "):
        load(path)


def test_thresholds_reach_sparks_workers():
    own = GroupThresholds(("ord", "ord.*"), (Thresholds(grace_ms=1), Thresholds(grace_ms=7)))
    there = pickle.loads(pickle.dumps(own))  # noqa: S301 - our own
    assert [there(group) and there(group).grace_ms for group in ("ord", "orders", "other")] == [1, 7, None]


def test_what_is_remembered_is_bounded_however_many_ids_there_are_and_however_long():
    patterns = GroupPatterns(["orders-.*"])
    tracemalloc.start()
    for number in range(2 * CACHED_IDS):
        patterns.first(f"{number:>{CACHED_CHARACTERS}}")
    for number in range(200):
        patterns.first(f"{number:>{LONGEST}}")
    remembered, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert patterns._cached.cache_info().currsize == CACHED_IDS
    assert remembered < 8_000_000
