"""The signals that end the demo. Python may lose the exception that a handler raises.

Inside a finalizer an exception is printed and dropped, and an HTTP response that is garbage-collected has a finalizer
(`tempfile._TemporaryFileCloser.__del__`, of `urllib.error.HTTPError`). So the exception is raised again by `obey`.
"""

import signal
import sys
from types import FrameType


class Stop:
    """Handles Ctrl-C and SIGTERM. It has to be created in the main thread."""

    def __init__(self) -> None:
        self._asked_by = 0
        signal.signal(signal.SIGTERM, self._asked)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a background job of a script ignores Ctrl-C
            signal.signal(signal.SIGINT, self._asked)

    def obey(self) -> None:
        """Raise `KeyboardInterrupt` after Ctrl-C or `SystemExit` after SIGTERM; else do nothing."""
        if self._asked_by == signal.SIGINT:
            raise KeyboardInterrupt
        if self._asked_by == signal.SIGTERM:
            sys.exit(128 + signal.SIGTERM)

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        self._asked_by = number
        self.obey()
