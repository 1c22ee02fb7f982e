"""Cluster rows of a capture: brokers' answers to requests made while recording, and what else a replay needs."""

import base64
import json
import re
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final, Self

import numpy as np
import structlog
from kafka.errors import KafkaError

from coordinator_model.brokers.leadership import STALE_MS
from coordinator_model.commit_block import NO_OFFSET, place_of
from coordinator_model.decode.parse import RejectedRow, parse_row
from coordinator_model.decode.source_row import CLUSTER, TELEMETRY, SourceRow
from coordinator_model.events import Tick
from streaming.capture.file import read_rows
from streaming.config.telemetry_zone import FIELD, zone_named
from streaming.run.cluster_facts import ask_topics, read_session_timeouts
from streaming.run.cluster_watch import ClusterWatch, Row
from streaming.run.lag.end_offsets import EndOffsets
from streaming.run.lag.rounds import Round

log = structlog.get_logger(__name__)

FACTS_EVERY_S: Final = 60.0
MAX_KEYS: Final = 1_000_000
_COMMIT_KEY: Final = re.compile(r'^\{"source":"offsets".*"key":"(AA[AE][^"]*)"')  # in base64 0 is AAA…, 1 is AAE…


class ClusterRows:
    """Writes a row after each metadata request, and one for each round of end offsets.

    `saw` must be called with the recorded lines: they contain the brokers' keys, and the topics that are in use.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        offsets_topic: str,
        nonce: str,
        write: Callable[[Sequence[str]], None],
        zone: str | None = None,
    ) -> None:
        self._client, self._nonce, self._write = client, nonce, write
        self._watch = ClusterWatch(client, offsets_topic, nonce, self._take)
        self._committed = CommittedTopics()
        self._end_offsets = EndOffsets(
            client, self._committed.names, suspects=lambda: None, behind_ms=self._delay_ms, take=self._take_round
        )
        self._zone, self._settings = zone_named(zone), {} if zone is None else {FIELD: zone}
        self._facts_s: float | None = None
        self._behind_ms = 0

    def __enter__(self) -> Self:
        self._watch.start()
        self._end_offsets.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end_offsets.stop()
        self._watch.stop()
        if kind is None:  # for topics created since the last request
            self._facts_s = None
            self._take({"source": CLUSTER, "timestamp_ms": _now_ms()})

    def saw(self, lines: Sequence[str]) -> None:
        """Read recorded rows of one partition, in offset order."""
        self._committed.saw(lines)
        if self._nonce:
            for line in lines:
                if self._nonce in line:
                    self._heard(line)
        for row in read_rows(iter(lines[-1:])):
            if isinstance(row, SourceRow) and row.source == TELEMETRY:
                self._behind_ms = _now_ms() - row.timestamp_ms

    def _heard(self, line: str) -> None:
        for row in read_rows(iter([line])):
            events = parse_row(row, self._zone) if isinstance(row, SourceRow) and row.source == TELEMETRY else []
            for event in () if isinstance(events, RejectedRow) else events:
                if isinstance(event, Tick):
                    self._watch.heard(event.asked, event.broker)

    def _take(self, row: Row) -> None:
        """Write a row with its instant by the brokers' clocks, as far as the lines read so far show them."""
        row = row | {"timestamp_ms": row["timestamp_ms"] - self._delay_ms()}
        self._write([_line(row | self._facts() | self._settings)])

    def _take_round(self, asked: Round) -> None:
        """Write a round of end offsets: what the leaders have answered in it."""
        self._write([_line({"source": CLUSTER, "timestamp_ms": asked.at_ms, **offsets_of(asked)})])

    def _delay_ms(self) -> int:
        return self._behind_ms if abs(self._behind_ms) <= STALE_MS else 0

    def _facts(self) -> Row:
        """Ask for facts that seldom change, every `FACTS_EVERY_S`; leave out those that may not be read."""
        if self._facts_s is not None and time.monotonic() - self._facts_s < FACTS_EVERY_S:
            return {}
        self._facts_s = time.monotonic()
        facts: Row = {}
        try:
            facts |= ask_topics(self._client)
            facts["session_timeouts_ms"] = asdict(read_session_timeouts(self._client))
        except KafkaError as error:
            log.warning("facts about the cluster could not be read: the capture lacks them", error=str(error))
        return facts


class CommittedTopics:
    """The topics for which offsets are committed, by the lines of a capture; each partition's key is read once."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._topics: set[str] = set()

    def names(self) -> list[str]:
        """Return the topics so far."""
        return list(self._topics)

    def saw(self, lines: Sequence[str]) -> None:
        """Read recorded lines: only keys of commits match, and only topics that Kafka allows count."""
        for line in lines:
            if (found := _COMMIT_KEY.search(line)) and found[1] not in self._keys and len(self._keys) < MAX_KEYS:
                self._keys.add(found[1])
                with suppress(ValueError, struct.error, IndexError):
                    self._topics.add(place_of(base64.b64decode(found[1])[2:])[1])


def offsets_of(asked: Round) -> Row:
    """Return the fields of a cluster row: offsets by topic and partition, None if there was no answer this time."""
    is_told = asked.asked_ms == asked.at_ms
    row: Row = {}
    for name, column in (("end_offsets", asked.ends), ("start_offsets", asked.starts)):
        offsets = np.where(is_told, column, NO_OFFSET).tolist()
        row[name] = {
            topic: [None if offset == NO_OFFSET else offset for offset in offsets[first : first + size]]
            for topic, (_, first, size) in asked.places.items()
        }
    row["stable_offsets"] = {
        topic: [asked.stable.get((topic, number)) for number in range(size)]
        for topic, (_, _, size) in asked.places.items()
    }
    return row


def _line(row: Row) -> str:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=True)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
