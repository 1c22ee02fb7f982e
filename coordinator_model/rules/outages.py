"""Outages: when groups of a shard could not commit, or when the time since a commit cannot be measured.

A partition is stalled only if its owner could have committed it. Commits are records, which are read from another topic
than telemetry lines. So most gaps in telemetry are not outages:

- No line comes from the coordinator. It may be down, and then nobody can commit. The time starts again.
- The coordinator's clock stepped, so instants before and after cannot be compared. The time starts again.
- Clients find no coordinator (``coordinator-unavailable``). The time starts again.
- Lines between others were lost, or have the instants of a shipper's buffer. The coordinator was up, and the lines
  that came show which members are alive. Nothing changes.
- The coordinator has no request log. As long as that lasts, no member is known to be alive. Nothing else changes.
"""

from coordinator_model.brokers.blindness import CLOCK_STEPPED, NO_LINES
from coordinator_model.group_report import GroupReport, Said
from coordinator_model.rules.coordinator_unavailable import COORDINATOR_UNAVAILABLE

COUNTS = frozenset({NO_LINES, CLOCK_STEPPED})
"""The kinds of blind windows after which the time starts again."""


Dumped = tuple[dict[int, int], list[tuple[int, str]]]


class Outages:
    """The outages of all shards, from their outputs in order; ``kept``: what ``dump`` returned before a restart."""

    def __init__(self, kept: Dumped = ({}, [])) -> None:
        ends_ms, still_open = kept
        self._end_ms = dict(ends_ms)
        self._open = set(still_open)
        """Shards with an outage that still lasts, each with the broker or the reports' holder that shows it."""

    def dump(self) -> Dumped:
        """Return the whole content: shards do not repeat what they have said, so a restart must not lose it."""
        return dict(self._end_ms), sorted(self._open)

    def take(self, said: Said) -> None:
        """Apply a blind window or a report about brokers. Other outputs change nothing."""
        if isinstance(said, GroupReport):
            if not said.group:
                self._take_report(said)
        elif said["kind"] == "blind" and said["why"] in COUNTS:
            self._note(said["shard"], said["broker"], said["until_ms"])

    def _take_report(self, report: GroupReport) -> None:
        refused = any(finding["rule"] == COORDINATOR_UNAVAILABLE.id for finding in report.findings)
        if refused or (report.shard, report.holder) in self._open:
            self._note(report.shard, report.holder, None if refused else report.at_ms)

    def _note(self, shard: int, teller: str, until_ms: int | None) -> None:
        if until_ms is None:
            self._open.add((shard, teller))
        else:
            self._open.discard((shard, teller))
            self._end_ms[shard] = max(until_ms, self._end_ms.get(shard, 0))

    def is_open(self, shard: int) -> bool:
        """Tell whether an outage of a shard lasts."""
        return any(known == shard for known, _ in self._open)

    def end_ms(self, shard: int, at_ms: int) -> int:
        """Return when the last outage of a shard ended; 0: there was none; ``at_ms``: it still lasts."""
        return at_ms if self.is_open(shard) else self._end_ms.get(shard, 0)
