"""Cluster rows of a capture: what metadata says while it is recorded, with all else that its replay needs."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, Self

import structlog
from kafka.errors import KafkaError

from coordinator_model.brokers.leadership import STALE_MS
from coordinator_model.decode.parse import RejectedRow, parse_row
from coordinator_model.decode.source_row import CLUSTER, TELEMETRY, SourceRow
from coordinator_model.events import Tick
from streaming.capture_file import read_rows
from streaming.run.cluster_facts import ask_topics, read_session_timeouts
from streaming.run.cluster_watch import ClusterWatch, Row
from streaming.telemetry_zone import FIELD, zone_named

log = structlog.get_logger(__name__)

FACTS_EVERY_S: Final = 60.0


class ClusterRows:
    """Writes a row whenever metadata was asked; `saw` is told of what is recorded, for it names the brokers' keys."""

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
        self._zone, self._settings = zone_named(zone), {} if zone is None else {FIELD: zone}
        self._facts_s: float | None = None
        self._behind_ms = 0

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._watch.stop()
        if kind is None:  # what was created since it was last asked for
            self._facts_s = None
            self._take({"source": CLUSTER, "timestamp_ms": _now_ms()})

    def saw(self, lines: Sequence[str]) -> None:
        """Take rows that were recorded, of one partition in its order."""
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
        """Write a row, its instant by the brokers' clocks as far as they are known: the lines read by then."""
        if 0 <= abs(self._behind_ms) <= STALE_MS:
            row = row | {"timestamp_ms": row["timestamp_ms"] - self._behind_ms}
        self._write([json.dumps(row | self._facts() | self._settings, separators=(",", ":"), ensure_ascii=True)])

    def _facts(self) -> Row:
        """Ask for what seldom changes, once in a while; what may not be asked is left out."""
        if self._facts_s is not None and time.monotonic() - self._facts_s < FACTS_EVERY_S:
            return {}
        self._facts_s = time.monotonic()
        facts: Row = {}
        try:
            facts |= ask_topics(self._client)
            facts["session_timeouts_ms"] = asdict(read_session_timeouts(self._client))
        except KafkaError as error:
            log.warning("the capture will not tell all of its cluster", error=str(error))
        return facts


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
