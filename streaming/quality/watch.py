"""The checks in `serve`: it stores the results, and opens a `data-quality` incident for each expectation that fails."""

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from coordinator_model.wording import counted
from streaming.config.settings import Settings
from streaming.extras import how_to_install
from streaming.quality.sample import take
from streaming.store import Store
from streaming.store.batch import DATA_QUALITY
from streaming.store.database import clean
from streaming.store.reports import own_finding, own_report
from streaming.store.store import wall_ms
from streaming.store.trouble import as_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.quality.checker import Checker, ExpectationResult

FAILURES_TO_TELL = 2  # in a row: the data may be inconsistent for a moment while it is written


class QualityWatch(threading.Thread):
    """The thread that checks every `every_ms` while this `serve` leads, until `stop` is set. Errors are only logged."""

    def __init__(self, store: Store, settings: Settings, leads: "Callable[[], bool]", stop: threading.Event) -> None:
        super().__init__(name="quality", daemon=True)
        self._store = store
        self._settings = settings
        self._leads = leads
        self._stop_event = stop
        self._checker: Checker | None = None
        self._counters: dict[str, Mapping[str, int]] = {}
        self._failures: dict[tuple[str, str], int] = {}
        self._log = structlog.get_logger("quality")

    def run(self) -> None:
        """Pause and check until stopped. The pause comes first, because after a start there is nothing to check."""
        while not self._stop_event.wait(self._settings.quality.every_ms / 1_000):
            try:
                if self._leads():
                    self.check(wall_ms())
            except ImportError as error:
                self._log.info("no checks of data quality", missing=error.name, advice=how_to_install("quality"))
                return
            except SQLAlchemyError as error:
                self._log.warning("the database failed", **as_fields(error))
            except Exception:  # noqa: BLE001 - `serve` must go on without the checks
                self._log.exception("a check of data quality failed")

    def check(self, now_ms: int) -> "list[ExpectationResult]":
        """Check every cluster once; store the results, open and close incidents."""
        from streaming.quality.checker import Checker  # noqa: PLC0415 - imports great-expectations, when first needed

        self._checker = self._checker or Checker()
        verdicts = []
        for run in self._store.read.runs():
            before = self._counters.get(run.cluster, {})
            frames = take(self._store, run.cluster, self._settings.quality.sample_rows, now_ms, before)
            self._counters[run.cluster] = frames.counters
            of_cluster = self._checker.check(frames.rows, run.cluster)
            self._store.write_quality(run.cluster, [as_row(verdict, now_ms) for verdict in of_cluster])
            self._tell(run.cluster, of_cluster, now_ms)
            verdicts += of_cluster
        return verdicts

    def _tell(self, cluster: str, verdicts: "Sequence[ExpectationResult]", now_ms: int) -> None:
        """Open incidents for repeated failures, keep those that go on open, close the others."""
        held = self._store.read.incidents(state="open", cluster=cluster, rule=DATA_QUALITY).objects
        since_ms = {incident["subject"]: incident["opened_ms"] for incident in held}
        failing = []
        for verdict in verdicts:
            subject = subject_of(verdict)
            times = self._failures[cluster, subject] = (
                0 if verdict.success else self._failures.get((cluster, subject), 0) + 1
            )
            if times >= FAILURES_TO_TELL or (times and subject in since_ms):
                failing.append(verdict)
        if failing or held:
            report = own_report(cluster, findings(failing, now_ms, since_ms), now_ms)
            self._store.apply_own(report, DATA_QUALITY, self._settings)


def findings(failing: "Iterable[ExpectationResult]", now_ms: int, since_ms: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return a finding for each failing expectation, with some of its rows."""
    return [
        own_finding(
            DATA_QUALITY,
            verdict.cluster,
            subject_of(verdict),
            severity="warn",
            opened_ms=since_ms.get(subject_of(verdict), now_ms),
            at_ms=now_ms,
            summary=f"{verdict.suite}: {verdict.expectation} fails for {counted(verdict.unexpected, 'value')}"
            " of the sample",
            detail={"unexpected": verdict.unexpected, "sample": verdict.sample},
        )
        for verdict in failing
    ]


def subject_of(verdict: "ExpectationResult") -> str:
    """Return the subject of a result's incident: suite and expectation."""
    return f"{verdict.suite}/{verdict.expectation}"


def as_row(verdict: "ExpectationResult", checked_ms: int) -> dict[str, Any]:
    """Return a result as a row for the store."""
    return {
        "cluster": clean(verdict.cluster, 255),
        "suite": verdict.suite,
        "expectation": clean(verdict.expectation, 200),
        "success": verdict.success,
        "checked_ms": checked_ms,
        "unexpected": verdict.unexpected,
        "sample": json.dumps(verdict.sample),
    }
