"""The patterns of `[[groups]]`, matched in time that is linear in a group id's length.

An id has up to 32 KiB, and any client can choose it. Python's regex engine backtracks: `.*-.*-.*-prod` takes minutes on
an id of hyphens, and `(a+)+b` practically never ends on forty letters. RE2 does not backtrack; it supports no lookahead
and no backreferences.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import re2

from coordinator_model.thresholds import Thresholds

CACHED_IDS: Final = 10_000
CACHED_CHARACTERS: Final = 256  # of an id: longer ones are not cached, so that the cache takes a few MB at most
MOST_BYTES: Final = 1 << 20  # of memory, for one compiled pattern of RE2


def compiled(pattern: str) -> Any:
    """Compile a pattern; `.` matches any character, also a line break. Raises `ValueError` with the reason."""
    options = re2.Options()
    options.dot_nl, options.log_errors, options.max_mem = True, False, MOST_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else error
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise ValueError(f"not a regular expression of RE2: {text}") from None


class GroupPatterns:
    """An ordered list of patterns."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._compiled = [compiled(pattern) for pattern in patterns]
        self._cached = lru_cache(CACHED_IDS)(self._match)

    def first(self, group: str) -> int | None:
        """Return the number of the first pattern that matches a whole group id."""
        return self._cached(group) if len(group) <= CACHED_CHARACTERS else self._match(group)

    def _match(self, group: str) -> int | None:
        text = group.encode("utf-8", "replace").decode()  # RE2 accepts only text that is valid in UTF-8
        return next((number for number, pattern in enumerate(self._compiled) if pattern.fullmatch(text)), None)


@lru_cache(16)
def group_patterns(patterns: tuple[str, ...]) -> GroupPatterns:
    """Return the same object for the same patterns, because it caches its matches."""
    return GroupPatterns(patterns)


@dataclass(frozen=True, slots=True)
class GroupThresholds:
    """The thresholds of groups that have their own; called with a group id, and pickled for Spark's workers."""

    patterns: tuple[str, ...]
    thresholds: tuple[Thresholds, ...]

    def __call__(self, group: str) -> Thresholds | None:
        """Return the thresholds of the first pattern that matches, or None."""
        number = group_patterns(self.patterns).first(group)
        return None if number is None else self.thresholds[number]
