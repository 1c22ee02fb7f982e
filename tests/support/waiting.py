"""Helpers that wait until something is true and fail if it never is, or start processes that can be interrupted."""

import contextlib
import signal
import time
from collections.abc import Iterator


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let children started here obey SIGINT even if this process ignores it, as background jobs of a shell do."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def await_true(claim, *, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.05)
