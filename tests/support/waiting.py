"""Wait for something to become true, and fail where it never does; start what is to be interrupted."""

import contextlib
import signal
import time
from collections.abc import Iterator


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Children started here heed SIGINT, also where this process ignores it, as a shell's background jobs do."""
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
