"""Rounds of end offsets: the newest offsets of all topics in use, and the end offsets of earlier rounds.

Earlier rounds are kept at intervals that grow with their age, and all partitions share them. They show since when, at
least, a message has waited.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self

import numpy as np

from coordinator_model.commit_block import NO_OFFSET
from coordinator_model.lag.lag_context import FRESH_MS
from streaming.run.lag.names import Names
from streaming.run.lag.slot_index import Int32s, Int64s

PART_OF_AGE: Final = 6
"""Earlier rounds are so close together that a message's instant is known to within this fraction (1/6) of its age."""
MAX_AGE_MS: Final = 7 * 86_400_000


_NONE: Int64s = np.empty(0, np.int64)


class Place(NamedTuple):
    """The position of a topic's partitions in a round's columns; `topic_id` None: not known (brokers before 2.8)."""

    topic_id: str | None
    first: int
    size: int


@dataclass(frozen=True, slots=True)
class Round:
    """Offsets of all partitions of topics, one topic after the other; `NO_OFFSET`: never answered.

    A partition without an answer in this round keeps its earlier offsets, with the instant of the earlier round.
    """

    at_ms: int
    """When it was requested, by the brokers' clocks."""
    answered_ms: int
    """When it ended, by this machine's clock."""
    places: Mapping[str, Place]
    ends: Int64s
    starts: Int64s
    asked_ms: Int64s
    answered_since_ms: Int64s
    """The round since which each partition has had answers; 0: always."""
    stable: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Last stable offsets of the partitions for which they were requested."""
    gone: frozenset[str] = frozenset()
    """Topics that do not exist."""
    unanswered: Mapping[str, int] = field(default_factory=dict)
    """What was not answered: error -> number of partitions, or of topics that could not be described."""
    _numbered: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def ends_of(self, names: Names[str], topics: Int32s, partitions: Int32s) -> Int64s:
        """Return the end offsets of partitions; their topics are given as numbers in `names`."""
        return self._taken(self.ends, names, topics, partitions)

    def ends_at(self, names: Names[str], topics: Int32s, partitions: Int32s, at_ms: Int64s) -> Int64s:
        """Return the end offsets of partitions as known at instants; `NO_OFFSET` if they were too old by then."""
        asked_ms = self._taken(self.asked_ms, names, topics, partitions)
        return np.where(asked_ms >= at_ms - FRESH_MS, self.ends_of(names, topics, partitions), NO_OFFSET)

    def offsets_of(self, names: Names[str], topics: Int32s, partitions: Int32s) -> tuple[Int64s, ...]:
        """Return end and start offsets of partitions, when they were requested, and since when each was answered."""
        columns = (self.ends, self.starts, self.asked_ms, self.answered_since_ms)
        return tuple(self._taken(column, names, topics, partitions) for column in columns)

    def counts_of(self, names: Names[str], topics: Int32s) -> Int64s:
        """Return how many partitions topics have; 0: the topic does not exist, -1: not known."""
        self._look_up(names)
        counts: Int64s = self._numbered["counts"][topics]
        return counts

    def dump(self) -> tuple[Any, ...]:
        """Return the end offsets in a form that `marshal` can write, and since when they are known."""
        places = {name: tuple(place) for name, place in self.places.items()}
        since = self.answered_since_ms.tobytes() if self.answered_since_ms.any() else b""
        return self.at_ms, self.answered_ms, places, self.ends.tobytes(), self.asked_ms.tobytes(), since

    @classmethod
    def load(cls, kept: tuple[Any, ...]) -> Self:
        """Load what `dump` returned; older versions returned nothing after `asked_ms`. Start offsets are not kept."""
        at_ms, answered_ms, places, *columns = kept
        ends, asked_ms, *since = (np.frombuffer(column, np.int64) for column in columns)
        since_ms = since[0] if since and len(since[0]) else np.zeros(len(asked_ms), np.int64)
        starts = np.full(len(asked_ms), NO_OFFSET)
        places = {name: Place(*place) for name, place in places.items()}
        return cls(at_ms, answered_ms, places, ends, starts, asked_ms, since_ms)

    def _taken(self, column: Int64s, names: Names[str], topics: Int32s, partitions: Int32s) -> Int64s:
        counts = self.counts_of(names, topics)
        known = (partitions >= 0) & (partitions < counts)
        if not known.any():
            return np.full(len(topics), NO_OFFSET)
        places = np.where(known, self._numbered["firsts"][topics] + partitions, 0)
        return np.where(known, column[places], NO_OFFSET)

    def _look_up(self, names: Names[str]) -> None:
        """Look up the topics by number, and again only if the numbers have changed."""
        if self._numbered.get("changes") == names.changes:
            return
        absent = {name: Place(None, 0, 0) for name in self.gone}
        unknown = Place(None, 0, -1)
        listed = [self.places.get(name or "") or absent.get(name or "", unknown) for name in names.by_number]
        self._numbered["firsts"] = np.array([place.first for place in listed], np.int64)
        self._numbered["counts"] = np.array([place.size for place in listed], np.int64)
        self._numbered["changes"] = names.changes


NO_ROUND: Final = Round(0, 0, {}, _NONE, _NONE, _NONE, _NONE)


class History:
    """Earlier rounds, oldest first; only their end offsets are kept."""

    def __init__(self, rounds: list[Round] | None = None) -> None:
        self.rounds = rounds or []

    def add(self, newest: Round) -> None:
        """Add a round, and drop earlier ones that are no longer needed."""
        before = self.rounds[-1] if self.rounds else NO_ROUND
        again = {
            name for name, place in newest.places.items() if place.topic_id != before.places.get(name, place).topic_id
        }
        if again:
            self.rounds = [_without(again, earlier) for earlier in self.rounds]
        self.rounds.append(_only_ends(newest))
        self.rounds = _thinned(self.rounds)

    def waits_since_ms(self, names: Names[str], topics: Int32s, partitions: Int32s, committed: Int64s) -> Int64s:
        """Return the earliest round since which every log was longer than the committed offset; 0: none."""
        since_ms = np.zeros(len(topics), np.int64)
        left = np.arange(len(topics))
        for earlier in reversed(self.rounds):
            ends = earlier.ends_of(names, topics[left], partitions[left])
            left = left[ends > committed[left]]
            if not len(left):
                break
            since_ms[left] = earlier.at_ms
        return since_ms

    def dump(self) -> list[tuple[Any, ...]]:
        """Return the whole content in a form that `marshal` can write."""
        return [of.dump() for of in self.rounds]

    @classmethod
    def load(cls, kept: list[tuple[Any, ...]]) -> Self:
        """Load what `dump` returned."""
        return cls([Round.load(of) for of in kept])


def _only_ends(of: Round) -> Round:
    return Round(of.at_ms, of.answered_ms, of.places, of.ends, _NONE, _NONE, _NONE)


def _without(topics: set[str], earlier: Round) -> Round:
    """Return a round without topics that were recreated after it."""
    return replace(earlier, places={n: p for n, p in earlier.places.items() if n not in topics}, _numbered={})


def _thinned(rounds: list[Round]) -> list[Round]:
    """Return the first, the last, and enough rounds between them to keep neighbors close for their age."""
    now_ms = rounds[-1].at_ms
    kept: list[Round] = []
    for at, candidate in enumerate(rounds):
        age_ms = now_ms - candidate.at_ms
        is_last = at == len(rounds) - 1
        if age_ms > MAX_AGE_MS:
            continue
        if kept and not is_last and rounds[at + 1].at_ms - kept[-1].at_ms < age_ms / PART_OF_AGE:
            continue
        kept.append(candidate)
    return kept
