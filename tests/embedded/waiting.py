"""Wait for something to become true, and fail where it never does."""

import time


def await_true(claim, *, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.05)
