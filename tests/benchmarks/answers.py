"""What the answers of `serve` cost: bytes, seconds, and how much the process grows while it makes them.

A fleet of groups that commit to 24 partitions each, one huge group, and groups with ids as long as Kafka accepts, in
SQLite; a real `serve`.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import requests

from streaming.config.settings import Settings
from streaming.store import Store
from tests.support.outputs import CLUSTER, START_MS, member, partition, partitions, progress, report, view

HUGE = "huge"
HUGE_MEMBERS = 10_000
LONG_IDS = 200
LONGEST_ID = 32_000
AT_ONCE = 500
REFRESHES = 10
TOPICS = ("orders", "payments")
PARTITIONS_A_TOPIC = 12
PATHS = (
    "/healthz",
    "/",
    "/metrics",
    "/metrics/kminion",
    "/metrics/kafka-exporter",
    "/metrics/burrow",
    f"/api/v1/groups/{HUGE}/partitions",
    f"/groups/{HUGE}",
    f"/api/v1/groups/{HUGE}",
    "/api/v1/groups?limit=10000",
)
"""The last one is asked last: what it leaves in the process' heap would hide what others need."""
CONFIG = """
cluster = "{cluster}"
store.url = "sqlite:///{folder}/monitor.db"
serve.port = 0
quality.enabled = false
"""


class Weight(NamedTuple):
    """What one answer cost; `grown_bytes`: the most memory that the process had beyond what it had before."""

    status: int
    sent_bytes: int
    took_s: float
    grown_bytes: int


def main(groups: int, members: int) -> None:
    """Fill a store, ask a `serve`, and print a row per question."""
    with tempfile.TemporaryDirectory(prefix="group-monitor-bench-") as temporary:
        folder = Path(temporary)
        store = Store.open(f"sqlite:///{folder}/monitor.db")
        fill(store, groups, members)
        store.close()
        (folder / "monitor.toml").write_text(CONFIG.format(cluster=CLUSTER, folder=folder))
        with serving(folder / "monitor.toml") as (pid, base):
            owned = groups * len(TOPICS) * PARTITIONS_A_TOPIC
            fleet = f"{groups:,} groups of {members} with {owned:,} partitions, one of {HUGE_MEMBERS:,}"
            print(f"| {fleet} | bytes | s | process grew by MiB |")
            print("| --- | --- | --- | --- |")
            for path in PATHS[:-1]:
                ask(pid, base, path)
            refreshed(pid, f"{base}/groups/{HUGE}")
            ask(pid, base, PATHS[-1])


def ask(pid: int, base: str, path: str) -> None:
    """Measure one answer."""
    show(f"`{path}`", weigh(pid, lambda: requests.get(base + path, timeout=300)))


def refreshed(pid: int, url: str) -> None:
    """Measure what the page's script fetches again for the huge group while nothing happens."""
    etag = requests.get(url, timeout=120).headers.get("ETag", "")
    again = [
        weigh(pid, lambda: requests.get(url, headers={"If-None-Match": etag}, timeout=120)) for _ in range(REFRESHES)
    ]
    show("… again, nothing new (mean)", Weight(*(sum(column) / len(again) for column in zip(*again, strict=True))))


def fill(store: Store, groups: int, members: int) -> None:
    """Write the fleet as `run` would."""
    names = [f"group-{number:05}" for number in range(groups)]
    long = [f"{number:03}".ljust(LONGEST_ID, "x") for number in range(LONG_IDS)]  # larger: the overview shows them
    outputs = [report(HUGE, view=huge())]
    outputs += [report(name, view=view(name, members=members)) for name in names]
    outputs += [report(name, view=view(name, members=members + 1)) for name in long]
    outputs += lags(names)
    for batch_id, first in enumerate(range(0, len(outputs), AT_ONCE)):
        store.apply_batch(
            checkpoint_id="bench",
            batch_id=batch_id,
            outputs=[*outputs[first : first + AT_ONCE], progress()],
            settings=Settings(cluster=CLUSTER),
        )


def lags(names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the lag of the groups; the huge one has as many partitions as are kept for a group."""
    history = [[START_MS - 10_000 * number, 1_000 + number] for number in reversed(range(60))]
    rows = [partition(number, topic=topic) for topic in TOPICS for number in range(PARTITIONS_A_TOPIC)]
    yield partitions(HUGE, *(partition(number) for number in range(5_000)), history=history)
    yield from (partitions(name, *rows, history=history, commits=100) for name in names)


def huge() -> dict[str, object]:
    """Return a group of members with ids as clients make them."""
    names = [f"worker-{number:05}-0b0c6a2e-5d3c-4f0e-9d57-{number:012}" for number in range(HUGE_MEMBERS)]
    owned = [[{"topic": "orders", "partitions": [number]}] for number in range(HUGE_MEMBERS)]
    members = [member(name, assignment=part) for name, part in zip(names, owned, strict=True)]
    return view(HUGE, members=0) | {"members": members}


def weigh(pid: int, ask: Callable[[], requests.Response]) -> Weight:
    """Ask once, and measure the most memory that the process had meanwhile."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # reset the peak of its memory
    before, began_s = memory_bytes(pid, "VmRSS"), time.monotonic()
    answer = ask()
    took_s = time.monotonic() - began_s
    return Weight(answer.status_code, len(answer.content), took_s, memory_bytes(pid, "VmHWM") - before)


def memory_bytes(pid: int, name: str) -> int:
    """Read one of Linux's figures about a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith(f"{name}:"))


def show(what: str, weight: Weight) -> None:
    status = "" if weight.status == 200 else f" ({weight.status:.0f})"
    print(f"| {what}{status} | {weight.sent_bytes:,.0f} | {weight.took_s:.2f} | {weight.grown_bytes / 2**20:.0f} |")


@contextmanager
def serving(config: Path) -> Iterator[tuple[int, str]]:
    """Run `serve`; yield its process id and its address."""
    command = [sys.executable, "-m", "streaming.cli", "serve", "--config", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = (json.loads(line) for line in process.stderr if line.startswith("{"))
            yield process.pid, next(event["url"] for event in lines if event["event"] == "listening")
        finally:
            process.terminate()
