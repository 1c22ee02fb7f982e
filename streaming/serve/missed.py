"""Rule `alerts-missed`: one summary of the pages that opened and closed while a receiver could not be reached.

The pages themselves are not sent later (`notify_reason.outdated`): nobody has to be woken for an incident that is over.
The summary is an incident of its own, of severity `warn`. It is open for an hour and sent to every receiver of that
severity, so one that wants only pages does not get it.
"""

from collections import defaultdict
from typing import Any, Final

from coordinator_model.wording import counted
from streaming.config.settings import Settings
from streaming.serve.notify.message import instant
from streaming.store import Store
from streaming.store.batch import ALERTS_MISSED
from streaming.store.outbox import Missed
from streaming.store.reader import RunProgress
from streaming.store.reports import own_finding, own_report

SHOWN_MS: Final = 3_600_000


class MissedAlerts:
    """The missed alerts that were reported, so that only changes are written."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._told: dict[str, list[Missed]] = {}

    def tell(self, runs: list[RunProgress]) -> None:
        """Open a summary if there are new missed alerts, and close it when it has been open for long enough."""
        by_cluster: defaultdict[str, list[Missed]] = defaultdict(list)
        for missed in self._store.outbox.missed(SHOWN_MS):
            by_cluster[missed.cluster].append(missed)
        for run in runs:
            found = sorted(by_cluster[run.cluster])
            if self._told.get(run.cluster) != found:
                now_ms = run.alive_ms + run.silent_ms  # the database's clock
                report = own_report(run.cluster, [finding(missed, now_ms) for missed in found], now_ms)
                self._store.apply_own(report, ALERTS_MISSED, self._settings)
                self._told[run.cluster] = found


def finding(missed: Missed, now_ms: int) -> dict[str, Any]:
    """Return the finding that sums up what one receiver missed."""
    lesser = f" and {counted(missed.lesser, 'incident')} of lesser severity" if missed.lesser else ""
    return own_finding(
        ALERTS_MISSED,
        missed.cluster,
        missed.receiver,
        severity="warn",
        opened_ms=missed.dismissed_ms,
        at_ms=now_ms,
        summary=(
            f"{counted(missed.pages, 'page')}{lesser} opened and closed while {missed.receiver} could not be told, "
            f"from {instant(missed.opened_ms)} to {instant(missed.closed_ms)}: group-monitor incidents --state closed"
        ),
        detail=missed._asdict(),
    )
