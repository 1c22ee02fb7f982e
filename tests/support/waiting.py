"""Helpers that wait until something is true and fail if it never is, or start processes that can be interrupted."""

import contextlib
import signal
import time
from collections.abc import Iterator

PATIENCE_S = 240
"""For an event that a busy machine may make late: it decides when a test fails, and is never waited out."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let children started here obey SIGINT even if this process ignores it, as background jobs of a shell do."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def await_true(claim, what="it never became true", *, timeout_s=PATIENCE_S, pause_s=0.05):
    """Return the first answer that is true; for what another process or thread does and gives no event for."""
    deadline = time.monotonic() + timeout_s
    while not (answer := claim()):
        assert time.monotonic() < deadline, what
        time.sleep(pause_s)
    return answer
