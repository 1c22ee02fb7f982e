"""The thread that sends a consumer's reports, for every client. Nothing in it may disturb the application.

There is never more than one report: the thread makes a report when it is due and waits until a broker has it. The age
in a report that waits is no longer true, so reports that become due meanwhile are dropped and counted. A series of
failures is logged once. The application shares no lock with the thread, so neither a fork nor an exit of the
interpreter can block it.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

log = logging.getLogger(__name__)

SEND_TIMEOUT_S: Final = 6.0
LONGEST_PAUSE_S: Final = 60.0  # it may take long until somebody adds a missing topic or right


class Subject(Protocol):
    """What the thread needs of a consumer."""

    def is_open(self) -> bool:
        """Tell whether there may be something to report, now or later."""

    def report(self) -> dict[str, Any] | None:
        """Return a report as of now; None if there is nothing to report."""


class Outlet(Protocol):
    """A small producer."""

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """Return once a broker has the record; raise if none has it within `SEND_TIMEOUT_S`."""

    def close(self) -> None:
        """Give up records that are not delivered yet, and close the connections."""


class ReportThread(threading.Thread):
    """The thread that sends one report per interval until the consumer is closed or garbage-collected."""

    def __init__(self, subject: Subject, connect: Callable[[], Outlet], topic: str, interval_s: float) -> None:
        super().__init__(name="group-monitor-reporter", daemon=True)
        self._subject = subject
        self._connect = connect
        self._topic = topic
        self._interval_s = interval_s
        self._outlet: Outlet | None = None
        self._failures = 0
        self._pause = threading.Event()  # never set; a wait on it ends with the process
        self.dropped = 0
        """How many reports were due and were not delivered."""

    def run(self) -> None:
        """Send reports until the consumer is closed; raise nothing."""
        try:
            while self._subject.is_open():
                self._send_and_rest()
            self._disconnect()
        except Exception as error:  # noqa: BLE001 # there is no caller to catch it
            log.warning("no more poll reports to %s: %s: %s", self._topic, type(error).__name__, error)

    def _send_and_rest(self) -> None:
        started_s = time.monotonic()
        try:
            delivered = self._send_one()
            rest_s = self._interval_s - (time.monotonic() - started_s)
        except Exception as error:  # noqa: BLE001 # whatever it is, the application must not suffer from it
            delivered = 0
            self._failures += 1
            self._tell(error)
            rest_s = min(LONGEST_PAUSE_S, self._interval_s * 2 ** min(self._failures, 16))
            self._disconnect()  # it would go on asking for a topic that does not exist, and log every response
        self._rest(rest_s)
        if delivered is not None:
            due = round((time.monotonic() - started_s) / self._interval_s)
            self.dropped += max(0, due - delivered)

    def _send_one(self) -> int | None:
        """Return how many reports were sent; None if there was nothing to report."""
        if self._outlet is None:
            self._outlet = self._connect()
        report = self._subject.report()
        if report is None:
            return None
        value = json.dumps({**report, "dropped": self.dropped}, separators=(",", ":")).encode()
        self._outlet.send(self._topic, str(report["group"]).encode(), value)
        self._failures = 0
        return 1

    def _rest(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0 and self._subject.is_open():
            self._pause.wait(min(left_s, self._interval_s))

    def _disconnect(self) -> None:
        outlet, self._outlet = self._outlet, None
        if outlet is not None:
            try:
                outlet.close()
            except Exception as error:  # noqa: BLE001 # the producer is given up in any case
                log.debug("closing the reporter's producer: %s", error)

    def _tell(self, error: Exception) -> None:
        if self._failures == 1:
            log.warning("poll reports to %s fail, trying again: %s: %s", self._topic, type(error).__name__, error)


def start(thread: ReportThread) -> ReportThread:
    """Start a thread; if that is not possible, only log it."""
    try:
        thread.start()
    except RuntimeError as error:  # no more threads are possible, or the interpreter is exiting
        log.warning("no poll reports: %s", error)
    return thread
