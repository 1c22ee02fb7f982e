"""The outputs of a batch, in order: reports of findings and views, heartbeats, progress, blind windows, quarantine."""

import base64
from collections.abc import Mapping
from typing import Any

from coordinator_model.brokers.coordinator_tracker import CoordinatorTracker
from coordinator_model.brokers.one_clock import BrokerClock
from coordinator_model.decode.parse import DETAIL_CHARACTERS
from coordinator_model.decode.source_row import TELEMETRY
from coordinator_model.events import Event
from coordinator_model.group_report import GroupReport
from coordinator_model.rules.findings import Finding

Output = dict[str, Any]
FAILED = "group"
"""The source of a quarantined event that could be read, but failed when it was applied to its group."""
FROM_THE_FUTURE = "line from the future"
OFF_ITS_RECORDS = "line's date contradicts the broker's records"
EVENT_CHARACTERS = 1_000
"""How much of an event the quarantine keeps."""


class Outputs:
    """The outputs and counts of a batch. Each output has its cluster, its shard and a sequence number."""

    def __init__(self, cluster: str, shard: int) -> None:
        self.listed: list[Output] = []
        self._cluster = cluster
        self._shard = shard
        self._counts: dict[str, int] = {}

    def count(self, name: str, more: int = 1) -> None:
        """Count events, under the name of what was done with them."""
        self._counts[name] = self._counts.get(name, 0) + more

    def report(
        self,
        at_ms: int,
        group: str,
        view: dict[str, Any] | None,
        findings: list[Finding],
        *,
        deleted: bool = False,
        holder: str = "",
        reason: str | None = None,
    ) -> None:
        """Report all findings about a group at an instant. The empty group id stands for the brokers.

        ``reason``: why the findings about brokers have ended that are not reported any more; None: the rule's own.
        """
        told = [{"cluster": self._cluster, **finding.as_dict()} for finding in findings]
        report = GroupReport(
            cluster=self._cluster,
            shard=self._shard,
            seq=len(self.listed),
            group=group,
            at_ms=at_ms,
            view=view,
            findings=told,
            deleted=deleted,
            holder=holder,
            reason=reason,
        )
        self.listed.append(report.as_output())

    def heartbeats(self, at_ms: int, groups: list[Any]) -> None:
        """Report heartbeats of groups for which nothing else has come since they were shown (``heartbeat_update``)."""
        self._emit("heartbeats", at_ms, groups=groups)

    def progress(
        self,
        clock: CoordinatorTracker,
        wall_ms: int | None,
        heard_ms: Mapping[str, int],
        *,
        groups: int,
        members: int,
        held: int,
    ) -> None:
        """Report how far the brokers have been read, and the counts. If only records are read, there is no broker.

        ``heard_ms``: how far each broker was before the batch. One without a new line since has no delay to report.
        A shard without members always counts as covered: no heartbeat could be missing, and none would end a timer
        reset.
        """
        uncovered = clock.coordinator if clock.waiting and members else None
        brokers = {
            name: {
                "progress_ms": broker.line_ms,
                "covered": name != uncovered,
                "delay_ms": _delay_ms(broker, wall_ms) if broker.line_ms > heard_ms.get(name, 0) else None,
            }
            for name, broker in clock.brokers.items()
        }
        self._emit(
            "progress",
            clock.line_ms,
            coordinator=clock.coordinator,
            groups=groups,
            members=members,
            held=held,
            brokers=brokers,
            counts=self._counts,
        )

    def blind(self, at_ms: int, broker: str, from_ms: int, until_ms: int | None, why: str) -> None:
        """Report that lines of a broker are missing between two instants; ``until_ms`` None: they are missing still."""
        self._emit("blind", at_ms, broker=broker, from_ms=from_ms, until_ms=until_ms, why=why)

    def quarantine(self, at_ms: int, event: Event | None, error: Exception) -> None:
        """Quarantine an event that failed. ``event`` None: a verdict failed, or reading or writing the state did."""
        place = ("", self._shard, at_ms) if event is None else event[2:5]
        topic, partition, offset = place
        head = "" if event is None else f"{type(event).__name__}{event[5:]!r}"
        self._emit(
            "quarantine",
            at_ms,
            source=FAILED,
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=at_ms,
            reason=f"failed: {type(error).__name__}",
            detail=str(error)[:DETAIL_CHARACTERS],
            head=base64.b64encode(head[:EVENT_CHARACTERS].encode("utf-8", "replace")).decode("ascii"),
        )

    def misdated(self, event: Event, count: int = 1, reason: str = FROM_THE_FUTURE) -> None:
        """Quarantine the place of a line whose instant is impossible, without its contents; of several lines, one."""
        _, _, topic, partition, offset, *_ = event
        self._emit(
            "quarantine",
            event.order_ms,
            source=TELEMETRY,
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=event.order_ms,
            reason=reason,
            detail=str(getattr(event, "broker", ""))[:DETAIL_CHARACTERS],
            head="",
        )
        self.count("misdated", count)

    def _emit(self, kind: str, at_ms: int, **rest: Any) -> None:
        head = {"kind": kind, "cluster": self._cluster, "shard": self._shard, "at_ms": at_ms}
        self.listed.append({**head, "seq": len(self.listed), **rest})


def _delay_ms(broker: BrokerClock, wall_ms: int | None) -> int | None:
    """Return how far a broker's newest line is behind this machine's clock; None: one of the two is not known."""
    return None if wall_ms is None or not broker.line_ms else max(0, wall_ms - broker.line_ms)
