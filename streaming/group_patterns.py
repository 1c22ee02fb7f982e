"""The patterns of `[[groups]]`, matched in time that is linear in a group id's length.

An id has up to 32 KiB and is any client's choice. Python's own engine backtracks: `.*-.*-.*-prod` takes minutes on an
id of hyphens, `(a+)+b` for ever on forty letters. RE2 does neither; it knows no lookahead and no backreference.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import re2

from coordinator_model.thresholds import Thresholds

CACHED_IDS: Final = 10_000
CACHED_CHARACTERS: Final = 256  # of an id: longer ones are matched anew, so that the cache takes some MB at most
MOST_BYTES: Final = 1 << 20  # of memory, for what RE2 makes of one pattern


def compiled(pattern: str) -> Any:
    """Compile a pattern, whose `.` is any character, a line break too; raises `ValueError` with the reason."""
    options = re2.Options()
    options.dot_nl, options.log_errors, options.max_mem = True, False, MOST_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else error
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise ValueError(f"not a regular expression of RE2: {text}") from None


class GroupPatterns:
    """Some patterns in their order."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._compiled = [compiled(pattern) for pattern in patterns]
        self._cached = lru_cache(CACHED_IDS)(self._match)

    def first(self, group: str) -> int | None:
        """Return the number of the first pattern that matches a whole group id."""
        return self._cached(group) if len(group) <= CACHED_CHARACTERS else self._match(group)

    def _match(self, group: str) -> int | None:
        text = group.encode("utf-8", "replace").decode()  # RE2 takes what UTF-8 can hold
        return next((number for number, pattern in enumerate(self._compiled) if pattern.fullmatch(text)), None)


@lru_cache(16)
def group_patterns(patterns: tuple[str, ...]) -> GroupPatterns:
    """Return the same object for the same patterns: it remembers what it has matched."""
    return GroupPatterns(patterns)


@dataclass(frozen=True, slots=True)
class GroupThresholds:
    """The thresholds of groups that have their own: called with a group id. Spark's workers get it pickled."""

    patterns: tuple[str, ...]
    thresholds: tuple[Thresholds, ...]

    def __call__(self, group: str) -> Thresholds | None:
        """Return those of the first pattern that matches."""
        number = group_patterns(self.patterns).first(group)
        return None if number is None else self.thresholds[number]
