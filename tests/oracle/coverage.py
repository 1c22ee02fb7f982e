"""What the monitor itself said about its coverage: when it told that it did not see everything."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from coordinator_model.decode.source_row import TELEMETRY
from coordinator_model.rules.coordinator import TELEMETRY_STALLED
from coordinator_model.rules.telemetry_uncovered import TELEMETRY_UNCOVERED
from coordinator_model.states import GroupState
from tests.oracle.judge import SAME_REMOVAL_MS, TRAILING_MS, Disagreement
from tests.oracle.monitor import Monitor
from tests.oracle.perturb import Arrival

ABOUT_COVERAGE = (TELEMETRY_STALLED.id, TELEMETRY_UNCOVERED.id)


@dataclass(frozen=True)
class Uncovered:
    """``spans_ms``: the blind windows, and the incidents about coverage. ``views``: the groups as they were shown.

    ``last_line_ms``: when the last line was written that came. After it, `run` tells by its own clock that telemetry is
    stalled; here there is none.
    """

    spans_ms: list[tuple[int, int | None]]
    views: dict[str, list[tuple[int, dict[str, Any]]]]
    live_from_ms: int
    last_line_ms: int

    def at(self, missed: Disagreement, session_ms: int) -> bool:
        """Tell whether a removal was missed while the coverage was told as broken.

        Lines that would have shown it are those from a session timeout before it until it has to be reported.
        """
        at_ms = missed.truth_ms or 0
        if at_ms - session_ms < self.live_from_ms or at_ms > self.last_line_ms - TRAILING_MS:
            return True
        if any(a <= at_ms + SAME_REMOVAL_MS and (b is None or at_ms - session_ms <= b) for a, b in self.spans_ms):
            return True
        return self._is_shown_as_unknown(missed, at_ms)

    def _is_shown_as_unknown(self, missed: Disagreement, at_ms: int) -> bool:
        """Tell whether the last view of the group before the removal shows the member or the group as unknown.

        No member is known to be alive in a group whose coordinator is unknown. Then no time passes for the group, so
        this view may be a later one.
        """
        views = self.views.get(missed.group, [])
        number = bisect_right(views, at_ms, key=lambda view: view[0])
        if not number:
            return True
        view = views[number - 1][1]
        own = [member for member in view["members"] if member["member_id"] == missed.member_id]
        if view["state"] == GroupState.UNKNOWN or not view["coordinator"]:
            return True
        return any(member["liveness"] == "unknown" for member in own)


def told_uncovered(monitor: Monitor, came: Iterable[Arrival]) -> Uncovered:
    """Return what a monitor that has read everything that came said about its coverage."""
    views: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for output in monitor.outputs:
        if output.get("view"):
            views.setdefault(output["group"], []).append((output["at_ms"], output["view"]))
    windows = [(one["from_ms"], one["until_ms"]) for one in monitor.outputs if one["kind"] == "blind"]
    incidents = _incidents(monitor.incidents())
    last_line_ms = max((row.timestamp_ms for _, row in came if row.source == TELEMETRY), default=0)
    return Uncovered([*windows, *incidents], views, monitor.settings.live_from_ms, last_line_ms)


def _incidents(told: Iterable[dict[str, Any]]) -> list[tuple[int, int | None]]:
    spans: dict[str, tuple[int, int | None]] = {}
    for line in told:
        if line["rule"] in ABOUT_COVERAGE:
            until_ms = line["at_ms"] if line["transition"] == "closed" else None
            spans[line["incident_id"]] = line["opened_ms"], until_ms
    return list(spans.values())
