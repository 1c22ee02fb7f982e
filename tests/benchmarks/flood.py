"""The real job under hostile requests: `make bench PART=flood`.

One real broker, real consumers (librdkafka, classic) of which one is killed every few seconds and replaced, the real
`run` over SQLite. The first part is without hostile requests, the second with 2,000 a second (`hostile`). The two are
compared with each other, because the machine's speed differs from hour to hour. It prints the time from a death (the
deadline in the broker's own log) until its incident is in the outbox; memory of each program over time, and its median
in each third of the flood; sizes on disk; the load of the machine. With the usual seconds it takes eight minutes. The
exit status is 1 if a death has no incident or an incident no death, if p50 or p99 under the flood is over its limit, or
if memory is not flat:

    of each program of `run`, the median of the last third of the flood is at most 10 % and 16 MiB over that of its
second third (the first is the warm-up of a JVM's heap).
"""

import argparse
import contextlib
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from streaming.demo.consumer import CONFLUENT
from streaming.embedded import EmbeddedCluster
from streaming.embedded.truth import SESSION_EXPIRED, read_truth
from tests.benchmarks.processes import usage_of

GROUPS = ("live-0", "live-1", "live-2", "live-3")
TOPIC = "live-topic"
MEMBERS = 4  # of each group
KILL_EVERY_S = 2.0
SESSION_MS = 6_000
RATE_PER_S = 2_000
SECONDS = 150  # of each part
WARM_UP_S = 60  # of the JVM, before the first part
P50_MS, P99_MS = 1_500, 2_500
GROWTH, GROWTH_BYTES = 1.10, 16 * 1024**2
SAMPLE_S = 5.0
SETTLED_S = 20  # after the last death: until its session ends and its incident is stored
START_S = 180
MIB = 1024**2
COUNTS = {
    "groups in the database at the end": "SELECT count(*) FROM groups",
    "incidents in it": "SELECT count(*) FROM incidents",
    "rejected rows in it": "SELECT count(*) FROM quarantine",
}
SENT = {"sent": "requests sent", "answered": "… answered", "records": "records in the client topic"}
CONFIG = """
cluster = "flood"
[kafka]
bootstrap_servers = "{servers}"
[run]
data_folder = "{folder}/data"
master = "local[{cores}]"
[store]
url = "sqlite:///{folder}/monitor.db"
[[notify]]
kind = "log"
"""


class Sample(NamedTuple):
    """Bytes, by what they belong to, and processor seconds so far, at one time of a part."""

    at_s: float
    memory: dict[str, int]
    disk: dict[str, int]
    cpu_s: dict[str, float]


@dataclass
class Part:
    """A stretch of time with or without hostile requests, and what was seen in it."""

    name: str
    since_ms: int
    until_ms: int = 0
    load: float = 0.0
    """The machine's load at its end: the mean of its last minute."""
    samples: list[Sample] = field(default_factory=list)


@dataclass
class Bench:
    """What runs, and where."""

    folder: Path
    cluster: EmbeddedCluster
    consumers: list["subprocess.Popen[bytes]"]
    job: "subprocess.Popen[str]"
    killed: int = 0

    def measure(self, name: str, seconds: float) -> Part:
        """Kill one consumer after the other, and sample memory and disk, for this time."""
        part, begin_s = Part(name, time.time_ns() // 1_000_000), time.monotonic()
        kill_s = sample_s = begin_s
        while (now_s := time.monotonic()) < begin_s + seconds and self.job.poll() is None:
            if now_s >= kill_s:
                self._kill_one()
                kill_s += KILL_EVERY_S
            if now_s >= sample_s:
                part.samples.append(self._sample(now_s - begin_s))
                sample_s += SAMPLE_S
            time.sleep(0.05)
        part.until_ms, part.load = time.time_ns() // 1_000_000, os.getloadavg()[0]
        return part

    def _kill_one(self) -> None:
        place = self.killed % len(self.consumers)
        self.consumers[place].kill()
        self.consumers[place].wait()
        self.killed += 1
        self.consumers[place] = consumer(self.cluster, place, f"live-{place}-{self.killed}")

    def _sample(self, at_s: float) -> Sample:
        programs = {f"run: {name}": usage for name, usage in usage_of(self.job.pid).items()}
        programs["broker"] = usage_of(self.cluster.node(1).pid)["driver"]
        disk = {
            "database": size(self.folder.glob("monitor.db*")),
            "checkpoint": size((self.folder / "data").rglob("*.*")),
        }
        return Sample(
            at_s,
            {name: usage.rss_bytes for name, usage in programs.items()},
            disk,
            {name: usage.cpu_s for name, usage in programs.items()},
        )


def main(options: argparse.Namespace) -> None:
    """Run both parts and print what was measured; exit with 1 if something is wrong."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="group-monitor-flood-")))
        cluster = stack.enter_context(EmbeddedCluster())
        cluster.create_topic(TOPIC, partitions=MEMBERS)
        config = {"message.timestamp.type": "LogAppendTime"}
        cluster.create_topic("group-client-telemetry", partitions=3, configs=config)
        problems = flood(folder, cluster, options, stack)
    for problem in problems:
        print(f"not as it should be: {problem}")
    sys.exit(bool(problems))


def flood(folder: Path, cluster: EmbeddedCluster, options: argparse.Namespace, stack: ExitStack) -> list[str]:
    """Run everything; return what is wrong."""
    config = CONFIG.format(servers=cluster.bootstrap_servers, folder=folder, cores=options.cores)
    (folder / "monitor.toml").write_text(config)
    bench = Bench(folder, cluster, stack.enter_context(consuming(cluster)), stack.enter_context(running(folder)))
    for group in GROUPS:
        await_rows(bench, "SELECT 1 FROM groups WHERE group_id = ? AND members = ?", group, MEMBERS)
    await_rows(bench, "SELECT 1 FROM runs WHERE caught_up")
    time.sleep(WARM_UP_S)
    parts = [bench.measure("without", options.seconds)]
    command = [sys.executable, "-m", "tests.benchmarks.hostile", str(cluster.node(1).port), GROUPS[0], str(RATE_PER_S)]
    with (folder / "hostile.jsonl").open("w") as sent:
        stack.enter_context(child(command, stdout=sent))
    time.sleep(SETTLED_S)
    parts.append(bench.measure("under the flood", options.seconds))
    time.sleep(SETTLED_S)
    if bench.job.poll() is not None:
        print((folder / "run.log").read_text()[-3_000:], file=sys.stderr)
        return [f"run ended by itself, exit status {bench.job.returncode}"]
    report_flood(folder)
    for part in parts:
        report_usage(part)
    return report_detection(bench, parts) + growth(parts[-1].samples)


@contextlib.contextmanager
def child(command: list[str], **how: Any) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(command, text=True, **how)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def running(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", "from streaming.cli import main; main()", "run"]
    with (
        (folder / "run.log").open("w") as log,
        child([*command, "--config", f"{folder}/monitor.toml"], stdout=log, stderr=log) as job,
    ):
        yield job
        job.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(30)


@contextlib.contextmanager
def consuming(cluster: EmbeddedCluster) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Keep `MEMBERS` consumers in each group; the caller that kills one starts another in its place."""
    consumers = [consumer(cluster, place, f"live-{place}") for place in range(MEMBERS * len(GROUPS))]
    try:
        yield consumers
    finally:
        for process in consumers:
            process.kill()
            process.wait()


def consumer(cluster: EmbeddedCluster, place: int, client_id: str) -> "subprocess.Popen[bytes]":
    spec = {
        "software": CONFLUENT,
        "bootstrap_servers": cluster.bootstrap_servers,
        "group": GROUPS[place % len(GROUPS)],
        "topic": TOPIC,
        "client_id": client_id,
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": SESSION_MS // 3,
        "max_poll_interval_ms": 300_000,
    }
    command = [sys.executable, "-m", "streaming.demo.consumer", json.dumps(spec)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def size(paths: Iterator[Path]) -> int:
    found = 0
    for path in paths:
        with contextlib.suppress(OSError):  # Spark has just deleted it
            found += path.stat().st_size
    return found


def rows(folder: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    try:
        with contextlib.closing(sqlite3.connect(folder / "monitor.db", timeout=30)) as database:
            return database.execute(sql, values).fetchall()
    except sqlite3.OperationalError:
        return []  # the database is not there yet


def await_rows(bench: Bench, sql: str, *values: object) -> None:
    give_up_s = time.monotonic() + START_S
    while not rows(bench.folder, sql, *values):
        if bench.job.poll() is not None or time.monotonic() > give_up_s:
            sys.exit(f"nothing for {sql}\n{(bench.folder / 'run.log').read_text()[-3_000:]}")
        time.sleep(0.2)


def report_flood(folder: Path) -> None:
    sent = [json.loads(line) for line in (folder / "hostile.jsonl").read_text().splitlines()]
    for name in sent[-1] if len(sent) > 1 else ():
        rate = (sent[-1][name] - sent[0][name]) / (len(sent) - 1)
        print(f"| hostile {SENT[name]} | {sent[-1][name]:,}, {rate:,.0f} a second |")
    for name, sql in COUNTS.items():
        print(f"| {name} | {rows(folder, sql)[0][0]:,} |")


def report_detection(bench: Bench, parts: list[Part]) -> list[str]:
    """Compare the broker's log with the incidents, in each part, and the parts with each other."""
    expired = {
        event.member_id: event.at_ms
        for event in read_truth({"broker-1": [bench.cluster.node(1).log_path]})
        if event.kind == SESSION_EXPIRED and event.group in GROUPS
    }
    found = rows(bench.folder, "SELECT group_id, body, detected_ms FROM incidents WHERE rule = 'session-expired'")
    opened = {json.loads(body)["member_id"]: detected_ms for group, body, detected_ms in found if group in GROUPS}
    problems = [f"nobody died as {member}" for member in opened.keys() - expired.keys()]
    report_others(bench, parts)
    p50s_ms = []
    for part in parts:
        deaths = {member: at_ms for member, at_ms in expired.items() if part.since_ms <= at_ms < part.until_ms}
        late_ms = sorted(opened[member] - at_ms for member, at_ms in deaths.items() if member in opened)
        missing = deaths.keys() - opened.keys()
        print(f"| deaths {part.name}, by the broker's log | {len(deaths)}, missing {len(missing)} |")
        problems += [f"no incident for {member}" for member in missing]
        if not late_ms:
            return [*problems, f"no death was detected {part.name}"]
        p50_ms, p99_ms = statistics.median(late_ms), late_ms[min(len(late_ms) - 1, int(len(late_ms) * 0.99))]
        p50s_ms.append(p50_ms)
        print(f"| … deadline by the broker's log to outbox, ms | p50 {p50_ms:.0f}, p99 {p99_ms}, max {late_ms[-1]} |")
    print(f"| p50 under the flood over p50 without | {p50s_ms[-1] / p50s_ms[0]:.2f} |")
    problems += [f"p50 is {p50_ms:.0f} ms, over {P50_MS}"] if p50_ms > P50_MS else []
    problems += [f"p99 is {p99_ms} ms, over {P99_MS}"] if p99_ms > P99_MS else []
    return problems


def report_others(bench: Bench, parts: list[Part]) -> None:
    """Print incidents of other groups: how many per rule and severity, before and since the first part began."""
    sql = (
        "SELECT rule, severity, opened_ms >= ? AS since, count(*) FROM incidents"
        " WHERE group_id NOT IN (?, ?, ?, ?) GROUP BY rule, severity, since"
    )
    found = rows(bench.folder, sql, parts[0].since_ms, *GROUPS)
    told = [f"{count} {rule} ({severity}){'' if since else ' before'}" for rule, severity, since, count in found]
    print(f"| incidents beside those of the live groups | {', '.join(told) or 'none'} |")


def report_usage(part: Part) -> None:
    shown = part.samples[:: max(1, len(part.samples) // 6)]
    print(f"| load of the machine {part.name} | {part.load:.1f} on {os.cpu_count()} cores |")
    print(f"| {part.name}, at second | {' | '.join(f'{sample.at_s:.0f}' for sample in shown)} |")
    for kind in ("memory", "disk"):
        for name in sorted(getattr(part.samples[-1], kind)):
            print(f"| {name}, MiB | {' | '.join(f'{getattr(s, kind).get(name, 0) / MIB:,.0f}' for s in shown)} |")
    first, last = part.samples[0], part.samples[-1]
    cores = {
        name: (last.cpu_s[name] - first.cpu_s.get(name, 0.0)) / (last.at_s - first.at_s) for name in sorted(last.cpu_s)
    }
    print(f"| … cores | {', '.join(f'{name} {used:.2f}' for name, used in cores.items())} |")


def growth(samples: list[Sample]) -> list[str]:
    """Print memory over time; return the programs of `run` that grow. The broker keeps groups that strangers name."""
    third = len(samples) // 3
    problems = []
    for name in sorted(samples[-1].memory):
        sizes = [sample.memory.get(name, 0) for sample in samples]
        thirds = (sizes[:third], sizes[third : 2 * third], sizes[2 * third :])
        medians = [statistics.median(part) for part in thirds]
        print(f"| {name}, MiB, median of each third | {' | '.join(f'{size / MIB:,.0f}' for size in medians)} |")
        _, before, after = medians
        if name != "broker" and after > before * GROWTH + GROWTH_BYTES:
            problems.append(f"{name} grew from {before / MIB:,.0f} to {after / MIB:,.0f} MiB")
    return problems
