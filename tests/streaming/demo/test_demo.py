"""The demo as a newcomer runs it: it ends by itself, agrees with the broker's log, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.parts import skip_without_broker
from tests.support.waiting import interruptible

pytestmark = pytest.mark.e2e
TIMEOUT_S = 580
MARK = "GROUP_MONITOR_DEMO_TEST"


@pytest.fixture(autouse=True, scope="module")
def parts():
    pytest.importorskip("pyspark")
    skip_without_broker()


def start(tmp_path, mark):
    """The demo, told apart from all others by a mark in its environment, which its children inherit."""
    environment = {**os.environ, MARK: mark, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "streaming.cli", "demo"]
    with interruptible():
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def alive(mark):
    """Process ids that carry the mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def await_nobody(mark):
    deadline = time.monotonic() + 60
    while left := alive(mark):
        assert time.monotonic() < deadline, f"left behind: {[Path(f'/proc/{pid}/cmdline').read_text() for pid in left]}"
        time.sleep(0.2)


@pytest.mark.timeout(TIMEOUT_S + 20)
def test_every_alert_agrees_with_the_brokers_log_and_nothing_is_left_behind(tmp_path):
    demo = start(tmp_path, "whole")
    try:
        said, _ = demo.communicate(timeout=TIMEOUT_S)
    finally:
        demo.kill()
    assert demo.returncode == 0, said
    verdict = said[said.index("What the broker's own log says") :]
    rows = [line.split() for line in verdict.splitlines() if line.rstrip().endswith("ok")]
    assert [row[0] for row in rows].count("payments") == 2
    assert sum("session-expired" in row for row in rows) == 3
    assert sum("poll-exceeded" in row for row in rows) == 2
    await_nobody("whole")
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith("group-monitor")] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_demo_that_is_stopped(tmp_path, number):
    demo = start(tmp_path, number.name)
    try:
        for line in demo.stdout:
            if "`serve` at" in line:
                break
        assert len(alive(number.name)) > 5
        demo.send_signal(number)
        demo.wait(60)
        await_nobody(number.name)
    finally:
        demo.kill()
        demo.stdout.close()
