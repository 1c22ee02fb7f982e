"""The end offsets of the topics in use, requested in rounds from a separate thread.

A round asks all leaders in parallel for the partitions that they lead: a thousand per request, and one request at a
time to each leader. If a leader fails, only its partitions have no new offsets in that round.
"""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, Self
from uuid import UUID

import numpy as np
import structlog
from kafka import KafkaAdminClient
from kafka.errors import KafkaConnectionError, KafkaError, UnknownTopicOrPartitionError, for_code
from kafka.protocol.consumer import IsolationLevel, ListOffsetsRequest, OffsetSpec
from kafka.protocol.metadata import MetadataRequest
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from coordinator_model.commit_block import NO_OFFSET
from coordinator_model.decode.topic_ids import text_of
from streaming.connection.brokers import refused_logins
from streaming.run.lag.rounds import NO_ROUND, Place, Round
from streaming.run.lag.slot_index import Int64s

log = structlog.get_logger(__name__)

ROUND_EVERY_S: Final = 10.0
LOOK_EVERY_S: Final = 0.5
"""How soon the first topics in use are noticed."""
METADATA_EVERY_S: Final = 30.0
"""How soon it is noticed that a topic was recreated or has grown, if no answer shows it."""
OUTAGE_MS: Final = 25_000
"""If rounds are farther apart than this, there was an outage between them."""
TIMEOUT_MS: Final = 5_000
METADATA_MAX_AGE_MS: Final = 10_000
_RECONNECT: Final = {"reconnect_backoff_max_ms": 1_000}  # a broker that is back is asked in the next round
TOPICS_AT_ONCE: Final = 1_000
PARTITIONS_AT_ONCE: Final = 1_000
MAX_TOPICS: Final = 50_000
"""Members may claim topics that do not exist. Lags of topics beyond this number are unknown."""
TOO_MANY_TOPICS: Final = "TooManyTopics"
"""The error by which these topics are counted in each round."""
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""What Kafka accepts as a topic's name; an assignment may contain any text."""

Partitions = dict[str, list[int]]
"""Topic to numbers of partitions."""


@dataclass(slots=True)
class _Topic:
    topic_id: str | None
    leaders: list[int]
    """By partition; -1 if there is none."""


@dataclass(slots=True)
class _Metadata:
    topics: dict[str, _Topic] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    refused: Counter[str] = field(default_factory=Counter)
    """The number of topics that could not be described, by error."""
    asked_s: float = float("-inf")


@dataclass(slots=True)
class _Columns:
    """The offsets that a round fills in."""

    places: dict[str, Place]
    ends: Int64s
    starts: Int64s
    stable: dict[tuple[str, int], int] = field(default_factory=dict)


class EndOffsets:
    """Asks from `start` to `stop`; `newest` is the last round, and each round is passed to `take`."""

    def __init__(
        self,
        client: Mapping[str, Any],
        topics: Callable[[], Collection[str]],
        *,
        suspects: Callable[[], Partitions | None] = dict,
        behind_ms: Callable[[], int] = lambda: 0,
        take: Callable[[Round], None] = lambda _: None,
        kept: Round = NO_ROUND,
        every_s: float = ROUND_EVERY_S,
    ) -> None:
        """Ask for the `topics` in use; of too many, the first ones.

        For `suspects` (None: all) ask for the last stable offset too. `behind_ms` returns how far the brokers' clocks
        are behind this machine's. `kept` is the last round of an earlier run: it shows which partitions had no answer.
        The time until this run asks is no outage.
        """
        timeouts = {"request_timeout_ms": TIMEOUT_MS, "bootstrap_timeout_ms": TIMEOUT_MS}
        self._client = {**client, **timeouts, "metadata_max_age_ms": METADATA_MAX_AGE_MS, **_RECONNECT}
        self._topics, self._suspects, self._behind_ms = topics, suspects, behind_ms
        self._take, self._kept, self._every_s = take, kept, every_s
        self._metadata, self._left_out = _Metadata(), 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="end-offsets", daemon=True)
        self.newest = kept
        self.unanswered: Counter[str] = Counter()
        """What failed in the last round: error -> number of partitions, or of topics that could not be described."""

    def ask_first(self, topics: Collection[str], take: Callable[[Round], None]) -> None:
        """Ask for a round before `start` and pass it to `take`; if that fails, there is none."""
        try:
            with closing(KafkaAdminClient(**self._client)) as admin:
                take(self._asked(admin._manager, frozenset(topics)))  # noqa: SLF001 # as below
        except Exception as error:  # noqa: BLE001 # then lags are known later
            log.warning("end offsets cannot be asked for before the first batch", error=repr(error))
        self._metadata, self.newest = _Metadata(), self._kept

    def start(self) -> Self:
        """Start asking; return at once."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop asking."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * TIMEOUT_MS / 1_000)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with closing(KafkaAdminClient(**self._client)) as admin:
                    self._ask_until_stopped(admin._manager)  # noqa: SLF001 # requests to one broker are not public
            except Exception as error:  # noqa: BLE001 # bad answers too: without end offsets lags are unknown
                log.warning("end offsets cannot be asked for, trying again", error=repr(error))
                self._metadata = _Metadata()
                self._stopping.wait(self._every_s / 2)

    def _ask_until_stopped(self, manager: Any) -> None:
        """Ask round after round, until stopped or until a broker has to be logged in to again."""
        while not self._stopping.is_set():
            began_s, topics = time.monotonic(), self._topics_to_ask_for()
            if topics:
                self.ask(manager, topics)
            self._stopping.wait(max(LOOK_EVERY_S, self._every_s - (time.monotonic() - began_s) if topics else 0.0))
            if refused := refused_logins(manager):
                log.warning("brokers refuse the login, trying again", brokers=refused)
                return

    def _topics_to_ask_for(self) -> frozenset[str]:
        """Return the topics in use, at most `MAX_TOPICS`, and count those that are left out."""
        named = list(filter(_NAME.fullmatch, self._topics()))
        before, self._left_out = self._left_out, max(0, len(named) - MAX_TOPICS)
        if self._left_out and not before:
            log.warning("too many topics are in use, some have no end offsets", topics=len(named), asked=MAX_TOPICS)
        return frozenset(named[:MAX_TOPICS])

    def ask(self, manager: Any, topics: frozenset[str]) -> Round:
        """Ask for one round and pass it to `take`."""
        self._take(self._asked(manager, topics))
        return self.newest

    def _asked(self, manager: Any, topics: frozenset[str]) -> Round:
        if self._metadata_is_old(topics):
            self._metadata = _asked_metadata(manager, topics)
        before, self.unanswered = self.unanswered, Counter(self._metadata.refused)
        columns = _empty(self._metadata)
        at_ms = _now_ms() - self._behind_ms()
        manager.run(self._ask_leaders, manager, columns)
        self._tell(before)
        gap_ms = 0 if self.newest is self._kept else at_ms - self.newest.at_ms
        told = _as_round(columns, self.newest, at_ms, gap_ms)
        left_out = {TOO_MANY_TOPICS: self._left_out} if self._left_out else {}
        self.newest = replace(told, gone=self._metadata.gone, unanswered=dict(self.unanswered) | left_out)
        return self.newest

    def _metadata_is_old(self, topics: frozenset[str]) -> bool:
        known = self._metadata
        return known.asked != topics or bool(self.unanswered) or time.monotonic() - known.asked_s >= METADATA_EVERY_S

    async def _ask_leaders(self, manager: Any, columns: _Columns) -> None:
        leaders = {leader for topic in self._metadata.topics.values() for leader in topic.leaders}
        asking = [manager.call_soon(self._ask_leader, manager, leader, columns) for leader in sorted(leaders)]
        for answer in asking:
            await answer

    async def _ask_leader(self, manager: Any, leader: int, columns: _Columns) -> None:
        led = {name: _led_by(leader, topic.leaders) for name, topic in self._metadata.topics.items()}
        led = {name: numbers for name, numbers in led.items() if numbers}
        suspects = _common(led, self._suspects())
        try:
            if leader < 0:
                self.unanswered["no leader"] += sum(map(len, led.values()))
                return
            for spec in (OffsetSpec.LATEST, OffsetSpec.EARLIEST):
                column = columns.ends if spec is OffsetSpec.LATEST else columns.starts
                for chunk in _chunks(led):
                    for name, number, offset in await self._ask_offsets(manager, leader, chunk, spec):
                        column[columns.places[name].first + number] = offset
            for chunk in _chunks(suspects):
                stable = await self._ask_offsets(manager, leader, chunk, OffsetSpec.LATEST, committed=True)
                columns.stable |= {(name, number): offset for name, number, offset in stable}
        except (KafkaError, OSError) as error:
            self.unanswered[type(error).__name__] += sum(map(len, led.values()))

    async def _ask_offsets(
        self, manager: Any, leader: int, chunk: Partitions, spec: OffsetSpec, *, committed: bool = False
    ) -> list[tuple[str, int, int]]:
        """Return topic, partition and offset of the partitions that the leader answers for.

        `committed`: as for a consumer with `read_committed`, up to the last stable offset.
        """
        of_topic = ListOffsetsRequest.ListOffsetsTopic
        of = of_topic.ListOffsetsPartition
        topics = [
            of_topic(name=name, partitions=[of(partition_index=number, timestamp=spec) for number in numbers])
            for name, numbers in chunk.items()
        ]
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        request = ListOffsetsRequest(isolation_level=isolation.value, topics=topics)
        answer = await manager.wait_for(manager.send(request, node_id=leader), TIMEOUT_MS)
        told = []
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    self.unanswered[for_code(partition.error_code).__name__] += 1
                else:
                    told.append((topic.name, partition.partition_index, partition.offset))
        return told

    def _tell(self, before: Counter[str]) -> None:
        """Log what was not answered, if the kinds of errors have changed."""
        if self.unanswered.keys() != before.keys():
            what = dict(self.unanswered)
            log.warning("end offsets are missing", unanswered=what) if what else log.info("all end offsets are known")


def _asked_metadata(manager: Any, topics: frozenset[str]) -> _Metadata:
    """Request metadata, a second time if the connection is lost: the client then asks another broker."""
    twice = Retrying(retry=retry_if_exception_type(KafkaConnectionError), stop=stop_after_attempt(2), reraise=True)
    metadata: _Metadata = twice(manager.run, _ask_metadata, manager, topics)
    return metadata


async def _ask_metadata(manager: Any, names: frozenset[str]) -> _Metadata:
    found, gone = _Metadata(asked=names, asked_s=time.monotonic()), set()
    listed = sorted(names)
    for start in range(0, len(listed), TOPICS_AT_ONCE):
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in listed[start : start + TOPICS_AT_ONCE]]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = await manager.wait_for(manager.send(request), TIMEOUT_MS)
        for topic in answer.topics:
            if topic.error_code == UnknownTopicOrPartitionError.errno:
                gone.add(topic.name)
            elif topic.error_code and not topic.partitions:
                found.refused[for_code(topic.error_code).__name__] += 1
            else:
                found.topics[topic.name] = _Topic(_id_of(topic), _leaders_of(topic.partitions))
    found.gone = frozenset(gone)
    return found


def _id_of(topic: Any) -> str | None:
    topic_id = getattr(topic, "topic_id", None)
    known = None if topic_id is None else UUID(str(topic_id))
    return text_of(known) if known is not None and known.int else None


def _leaders_of(partitions: Any) -> list[int]:
    by_number = {partition.partition_index: partition.leader_id for partition in partitions}
    return [by_number.get(number, -1) for number in range(max(by_number, default=-1) + 1)]


def _led_by(leader: int, leaders: list[int]) -> list[int]:
    return [number for number, its in enumerate(leaders) if its == leader]


def _common(led: Partitions, suspects: Partitions | None) -> Partitions:
    if suspects is None:
        return led
    both = {name: sorted({*led[name]} & {*numbers}) for name, numbers in suspects.items() if name in led}
    return {name: numbers for name, numbers in both.items() if numbers}


def _chunks(partitions: Partitions) -> Iterator[Partitions]:
    """Split partitions into requests of a bounded size."""
    listed = ((name, number) for name, numbers in partitions.items() for number in numbers)
    while chunk := list(islice(listed, PARTITIONS_AT_ONCE)):
        by_name: Partitions = {}
        for name, number in chunk:
            by_name.setdefault(name, []).append(number)
        yield by_name


def _empty(metadata: _Metadata) -> _Columns:
    places, first = {}, 0
    for name, topic in metadata.topics.items():
        places[name] = Place(topic.topic_id, first, len(topic.leaders))
        first += len(topic.leaders)
    return _Columns(places, np.full(first, NO_OFFSET), np.full(first, NO_OFFSET))


def _as_round(columns: _Columns, before: Round, at_ms: int, gap_ms: int) -> Round:
    """Return the answers as a round; a partition without an answer keeps its earlier one if the topic is the same."""
    ends, starts = columns.ends, columns.starts
    is_told = ends != NO_OFFSET
    asked_ms, since_ms = np.where(is_told, at_ms, NO_OFFSET), np.zeros(len(ends), np.int64)
    for name, place in columns.places.items():
        known = before.places.get(name)
        if known is None or known.topic_id != place.topic_id:
            continue
        count = min(place.size, known.size)
        now, then = slice(place.first, place.first + count), slice(known.first, known.first + count)
        was_missing = (before.asked_ms[then] < before.at_ms) | (gap_ms > OUTAGE_MS)
        is_back = is_told[now] & was_missing & (before.asked_ms[then] != NO_OFFSET)
        since_ms[now] = np.where(is_back, at_ms, before.answered_since_ms[then])
        for column, earlier in ((asked_ms, before.asked_ms), (ends, before.ends), (starts, before.starts)):
            column[now] = np.where(column[now] == NO_OFFSET, earlier[then], column[now])
    return Round(at_ms, _now_ms(), columns.places, ends, starts, asked_ms, since_ms, columns.stable)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
