"""A life as it was played: the capture that a monitor reads, and what really happened."""

import json
from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from coordinator_model.decode.source_row import CLUSTER, OFFSETS, TELEMETRY, SourceRow
from streaming.embedded.truth import TruthEvent, parse_line, without_dead_groups
from tests.oracle.plans import Plan

PROBE = b'"clientId":"group-monitor-probe"'
USUAL_ERRORS = (
    "for the timer",
    "for the task",
    "hit an unexpected exception",
    "could not complete rebalance because no members rejoined",
    "unexpected notification of sync expiration",
)
"""Errors that lives cause: the write of a timer or of a background task fails (and may be tried again), Kafka fails to
handle a request, no member rejoins in a rebalance, or the sync timer of a classic group runs out after the group was
converted, emptied and converted back."""


@dataclass(frozen=True)
class Look:
    """The coordinator's live groups at a quiet moment. The first ``rows`` rows of the capture show nothing later.

    ``at_ms`` is by the coordinator's clock. ``life_ms`` is when those rows are read, by the clock of the life, which
    never steps.
    """

    rows: int
    broker: str
    at_ms: int
    groups: list[dict[str, Any]]
    life_ms: int = 0


@dataclass
class Life:
    """Rows in the order in which they could be read; looks; the coordinators' log; what clients know of themselves."""

    plan: Plan
    rows: list[SourceRow] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    truth: list[TruthEvent] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)
    client: list[dict[str, Any]] = field(default_factory=list)
    reads: list[tuple[int, int]] = field(default_factory=list)
    """If a clock steps: how many rows can be read when, by the clock of the life."""
    stepped: dict[TruthEvent, int] = field(default_factory=dict)
    """How far a broker's clock had stepped when it logged an event; 0 if it is not here."""
    _look: dict[str, Any] | None = None

    @classmethod
    def parse(cls, plan: Plan, lines: Iterable[bytes]) -> "Life":
        """Parse what the driver prints."""
        life = cls(plan)
        for line in lines:
            row = json.loads(line)
            source = row["source"]
            if source == TELEMETRY:
                value = row["value"].encode()
                if PROBE not in value:
                    life.end_looks()
                life.rows.append(SourceRow(source, *_place(row), row["key"].encode(), value))
            elif source == OFFSETS:
                life.end_looks()
                value = row["value"] and b64decode(row["value"])
                life.rows.append(SourceRow(source, *_place(row), b64decode(row["key"]), value))
            elif source == CLUSTER:
                life.rows.append(SourceRow(CLUSTER, "", 0, 0, row["timestamp_ms"], None, line))
            elif source == "look":
                life.end_looks()
                life._look = row
            elif source == "read":
                life.end_looks(row["life_ms"])
                life.reads.append((len(life.rows), row["life_ms"]))
            elif source == "log":
                life.log.append(row)
                life.read_log(row)
            else:
                life.client.append(row)
        life.end_looks()
        life.truth = without_dead_groups(life.truth)
        return life

    def read_log(self, row: dict[str, Any]) -> None:
        """Parse a line of the coordinator's log into events."""
        events = list(parse_line(as_log_line(row), f"broker-{row['broker']}"))
        self.truth += events
        if self.plan.clocks_step:
            ahead_ms = row["timestamp_ms"] - row["life_ms"] - self.plan.clock_offsets_ms[row["broker"] - 1]
            self.stepped |= dict.fromkeys(events, ahead_ms)

    def end_looks(self, life_ms: int = 0) -> None:
        """End the last look: the next row shows more. A probe ends none, because it shows only that time passes."""
        if self._look is not None:
            look, self._look = self._look, None
            broker, at_ms = f"broker-{look['broker']}", look["timestamp_ms"]
            began_ms = look.get("life_ms", at_ms)
            self.looks.append(Look(len(self.rows), broker, at_ms, look["groups"], max(began_ms, life_ms)))
            self.reads.append((len(self.rows), max(began_ms, life_ms)))

    def trouble(self) -> list[str]:
        """Return errors of Kafka's runtime that no life should cause: they show a fault of the driver."""
        errors = [row["message"] for row in self.log if row["level"] == "ERROR"]
        return [message for message in errors if not any(known in message for known in USUAL_ERRORS)]


def _place(row: dict[str, Any]) -> tuple[str, int, int, int]:
    return row["topic"], row["partition"], row["offset"], row["timestamp_ms"]


def as_log_line(row: dict[str, Any]) -> str:
    """Return a line of the coordinator's log as its broker would have written it."""
    at_ms = row["timestamp_ms"]
    at = datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"[{at},{at_ms % 1000:03}] {row['level']} {row['message']} ({row['logger']})"
