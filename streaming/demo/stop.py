"""The signals that end the demo, and that Python may lose.

What a handler raises inside a finalizer is printed and forgotten, and an answer of HTTP that is thrown away has one
(`tempfile._TemporaryFileCloser.__del__`, of `urllib.error.HTTPError`): so it is raised again at the next look.
"""

import signal
import sys
from types import FrameType


class Stop:
    """Takes Ctrl-C and SIGTERM; to be made in the main thread."""

    def __init__(self) -> None:
        self._asked_by = 0
        signal.signal(signal.SIGTERM, self._asked)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a script's background job is not for Ctrl-C
            signal.signal(signal.SIGINT, self._asked)

    def obey(self) -> None:
        """Raise `KeyboardInterrupt` or `SystemExit` where one of the two has been asked for; else do nothing."""
        if self._asked_by == signal.SIGINT:
            raise KeyboardInterrupt
        if self._asked_by == signal.SIGTERM:
            sys.exit(128 + signal.SIGTERM)

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        self._asked_by = number
        self.obey()
