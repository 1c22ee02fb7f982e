"""The numbers of docs/performance.md: `python -m tests.benchmarks PART …`, all of them listed by `--help`.

Real Kafka, the real job with real replicas and SQLite, synthetic groups (`load`). Nothing here passes or fails,
but for `flood`: it prints what it measured, as Markdown rows. `all` is `steady`, `backlog`, `cold` and `line`.
"""

import argparse
import contextlib
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from streaming.config.settings import Run
from streaming.embedded import EmbeddedCluster
from streaming.embedded.node import JVM_OPTIONS
from streaming.run.source import ROWS_PER_BATCH
from tests.benchmarks import (
    answers,
    cold,
    first_start,
    flood,
    history,
    lag,
    large_audit,
    line,
    reporter,
    synthetic,
    telemetry_cost,
)
from tests.benchmarks.load import INTERVAL_MS
from tests.benchmarks.processes import Usage, usage_of

SECONDS = 300
START_S = 240  # at most, for Spark, the first batches and reading back the telemetry
WARM_UP_S = 240  # the JVM compiles (decision 0007, 18)
BACKLOG_S = 90  # of heartbeats that wait for the job
SPEED_LOOPS = 50
HEARTBEAT_S = INTERVAL_MS / 1_000
BROKERS = 4
COMMIT_RATES = (0, 5_000, 10_000, 20_000, 30_000)
"""Rates per second, each for a while."""
RATE_S = 45
SETTLE_S = 15
"""At the start of each rate: not measured."""
COMMITTED_AT_MOST = 1_000
THIRDS = 3
ALL = ("steady", "backlog", "cold", "line")
ALONE = ("commits", "history", "answers", "lag", "flood", "reporter", "telemetry-cost", "audit", "first-start")
JOB, FLOOR = "watched_run", "floor_run"
BROKER_JVM = "-XX:TieredStopAtLevel=4"  # both of the JVM's compilers, as in production
OFFSETS_TOPIC, EMPTY_TOPIC = "bench-offsets", "bench-empty"
CONFIG = """
cluster = "bench"
[kafka]
bootstrap_servers = "{servers}"
offsets_topic = "{topic}"
telemetry_topics = ["bench-telemetry"]
client_telemetry_topics = []
[run]
data_folder = "{folder}/data"
master = "local[{cores}]"
trigger_ms = {trigger_ms}
[store]
url = "sqlite:///{folder}/monitor.db"
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "part",
        choices=("all", *ALL, *ALONE),
        nargs="?",
        default="all",
    )
    parser.add_argument(
        "--seconds", type=int, help="of the measured part of the steady load (300), or of each of the flood (150)"
    )
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--cores", type=int, default=2, help="Spark's local[n]")
    parser.add_argument("--trigger-ms", type=int, default=Run().trigger_ms, help="the job's own unless told")
    parser.add_argument("--deaths-per-s", type=float, default=1.0)
    parser.add_argument("--job", choices=(JOB, FLOOR), default=JOB, help=f"{FLOOR}: Spark alone, with empty stages")
    parser.add_argument(
        "--records", type=int, default=2_000_000, help="of the cold start and the audit; rows of the history"
    )
    parser.add_argument("--floor", action="store_true", help=f"of the cold start: measure {FLOOR}, too")
    parser.add_argument("--pairs", type=int, help=f"of the telemetry's cost ({telemetry_cost.PAIRS})")
    options = parser.parse_args()
    options.seconds = options.seconds or (flood.SECONDS if options.part == "flood" else SECONDS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started ends too
    os.environ.setdefault(JVM_OPTIONS, BROKER_JVM)
    for part in ALL if options.part == "all" else (options.part,):
        print(f"\n{part}, {datetime.now(UTC):%H:%M:%S}:", flush=True)
        measure(part, options)


def measure(part: str, options: argparse.Namespace) -> None:
    if part == "line":
        line.main(options.groups, options.members)
        return
    if part == "history":
        history.main(options.records)
        return
    if part == "first-start":
        first_start.main(options.records, options.groups)
        return
    if part == "answers":
        answers.main(options.groups, options.members)
        return
    if part == "lag":
        lag.main(options.groups)
        return
    if part == "flood":
        flood.main(options)
        return
    if part == "reporter":
        reporter.main()
        return
    if part == "telemetry-cost":
        telemetry_cost.main(options)
        return
    if part == "audit":
        large_audit.main(options)
        return
    with tempfile.TemporaryDirectory(prefix="group-monitor-bench-") as temporary:
        folder = Path(temporary)
        with EmbeddedCluster(telemetry=False, create_telemetry_topic=False) as cluster:
            cluster.create_topic(OFFSETS_TOPIC, partitions=cold.SHARDS)
            cluster.create_topic("bench-telemetry", partitions=BROKERS)
            (folder / "monitor.toml").write_text(config(cluster, folder, options, OFFSETS_TOPIC))
            parts = {"steady": steady, "backlog": backlog, "cold": cold_start, "commits": commits}
            parts[part](cluster, folder, options)


def config(cluster: EmbeddedCluster, folder: Path, options: argparse.Namespace, topic: str) -> str:
    """Return the configuration of a job that keeps everything in a folder."""
    chosen = {"cores": options.cores, "trigger_ms": options.trigger_ms, "topic": topic}
    return CONFIG.format(servers=cluster.bootstrap_servers, folder=folder, **chosen)


def steady(cluster: EmbeddedCluster, folder: Path, options: argparse.Namespace) -> None:
    """Measure at the pace of the heartbeats: batches, detection, memory, CPU time."""
    seconds = START_S + WARM_UP_S + options.seconds
    with loaded(cluster, folder, options, seconds + 30), running(folder, options.job) as job:
        await_steady(folder, 3 * options.groups * options.members / HEARTBEAT_S)
        begun = time.time()
        time.sleep(WARM_UP_S)
        report_speed("before")
        before, since = usage_of(job.pid), time.time()
        report_spans(f"its first {WARM_UP_S} s", batches_between(folder, begun, since), options.trigger_ms)
        time.sleep(options.seconds)
        after, until = usage_of(job.pid), time.time()
        report_speed("after")
        report_batches(folder, since, until, options.trigger_ms)
        report_usage(before, after, until - since)
        if options.job == FLOOR:
            return
        time.sleep(25)  # the last deadlines are judged
    report_detection(folder, since, until)
    report_state(folder, options.groups * options.members)


def backlog(cluster: EmbeddedCluster, folder: Path, options: argparse.Namespace) -> None:
    """Measure the highest rate: the job starts with heartbeats waiting."""
    with loaded(cluster, folder, options, BACKLOG_S):
        time.sleep(BACKLOG_S)
    with running(folder):
        await_steady(folder, 1_000)
    full = [batch for batch in batches(folder) if batch["rows"] > 100_000]
    if not full:
        print("| highest rate | fewer lines waited than tell one |")
        return
    lines, busy_s = sum(batch["rows"] for batch in full), busy(full)
    print(f"| highest rate | {lines:,} lines that waited, in {len(full)} batches: {lines / busy_s:,.0f} a second |")


def commits(cluster: EmbeddedCluster, folder: Path, options: argparse.Namespace) -> None:
    """Measure what offset commits cost beside the heartbeats, at rising rates, and up to which no backlog grows."""
    cluster.create_topic(synthetic.TOPIC, partitions=synthetic.PARTITIONS)
    cold.fill_topic_of(cluster.bootstrap_servers, synthetic.PARTITIONS, COMMITTED_AT_MOST)
    heartbeat_cores = 0.0
    seconds = START_S + WARM_UP_S + (RATE_S + SETTLE_S) * len(COMMIT_RATES)
    with loaded(cluster, folder, options, seconds), running(folder, options.job) as job:
        await_steady(folder, 3 * options.groups * options.members / HEARTBEAT_S)
        for rate in COMMIT_RATES:
            with committing(cluster, options, rate):
                time.sleep(SETTLE_S)
                before, since = usage_of(job.pid), time.time()
                time.sleep(RATE_S)
                after, until = usage_of(job.pid), time.time()
            cores = sum(after[name].cpu_s - before[name].cpu_s for name in before) / (until - since)
            if not rate:
                heartbeat_cores = cores
            report_rate(rate, batches_between(folder, since, until), cores, heartbeat_cores, options)
    records = cold.records_in(cluster.bootstrap_servers, OFFSETS_TOPIC)
    reader_s = cold.read_bare(cluster.bootstrap_servers, OFFSETS_TOPIC, records)
    print(
        f"| a bare reader, {records:,} records of the offsets topic | {records / reader_s:,.0f} a second |", flush=True
    )


@contextlib.contextmanager
def committing(cluster: EmbeddedCluster, options: argparse.Namespace, rate: int) -> Iterator[None]:
    """Keep offset commits coming at this rate per second."""
    values = {
        "bootstrap-servers": cluster.bootstrap_servers,
        "topic": OFFSETS_TOPIC,
        "shards": cold.SHARDS,
        "groups": options.groups,
        "partitions": synthetic.PARTITIONS,
        "rate": rate,
        "seconds": SETTLE_S + RATE_S,
    }
    flags = [f"--{name}={value}" for name, value in values.items()]
    if not rate:
        yield
        return
    with subprocess.Popen([sys.executable, "-m", "tests.benchmarks.commit_load", *flags]) as load:
        try:
            yield
        finally:
            load.terminate()


def report_rate(
    rate: int, chosen: list[dict[str, object]], cores: float, heartbeat_cores: float, options: argparse.Namespace
) -> None:
    """Print a row: rows per batch in the first and the last third show whether a backlog grows."""
    if len(chosen) < THIRDS:
        print(f"| {rate:,} commits a second | fewer batches than tell anything |", flush=True)
        return
    spans = [batch["durations_ms"]["triggerExecution"] for batch in chosen]
    thirds = len(chosen) // THIRDS
    first, last = (statistics.mean(batch["rows"] for batch in part) for part in (chosen[:thirds], chosen[-thirds:]))
    heartbeats = options.groups * options.members / HEARTBEAT_S
    cost_s, what = ((cores - heartbeat_cores) / rate, "commit") if rate else (cores / heartbeats, "line")
    print(
        f"| {rate:,} commits a second beside {heartbeats:,.0f} lines | {len(chosen)} batches, p50 "
        f"{statistics.median(spans) / options.trigger_ms:.0%} of the trigger; {first:,.0f} rows a batch at first, "
        f"{last:,.0f} at last | {cores:.2f} cores, {cost_s * 1e6:.0f} µs a {what} | {os.getloadavg()[0]:.1f} |",
        flush=True,
    )


def cold_start(cluster: EmbeddedCluster, folder: Path, options: argparse.Namespace) -> None:
    """Measure from the command to a view of all groups, beside a bare reader and the job on an empty topic."""
    servers = cluster.bootstrap_servers
    cluster.create_topic(synthetic.TOPIC, partitions=synthetic.PARTITIONS)
    cold.fill(servers, OFFSETS_TOPIC, options.records, options.groups, synthetic.PARTITIONS)
    cluster.create_topic(EMPTY_TOPIC, partitions=cold.SHARDS)
    cpu_s = time.process_time()
    reader_s = [cold.read_bare(servers, OFFSETS_TOPIC, options.records)]
    cpu_s = time.process_time() - cpu_s
    empty_s, idle = await_read(job_folder(cluster, folder / "empty", options, EMPTY_TOPIC), 0)
    begin = time.time()
    with running(folder) as job:
        cold.await_rows(folder / "monitor.db", "SELECT count(*) FROM groups", options.groups)
        total_s = time.time() - begin
        cold.await_rows(folder / "monitor.db", "SELECT count(*) FROM lags WHERE complete", options.groups)
        lags_s, used = time.time() - begin, usage_of(job.pid)
    reader_s.append(cold.read_bare(servers, OFFSETS_TOPIC, options.records))
    bare_s = min(reader_s)
    readers = " and ".join(f"{seconds:.1f} s" for seconds in reader_s) + f" ({cpu_s:.1f} s of CPU time)"
    print(f"| cold start, {options.records:,} records, until all groups are in view | {total_s:.1f} s |")
    print(f"| … until all lags are in view | {lags_s:.1f} s |")
    print(f"| … `run` on an empty topic, until its first batch has ended | {empty_s:.1f} s |")
    print(f"| … a bare reader, before and after | {readers} |")
    print(f"| … above the empty topic, in times of the reader's {bare_s:.1f} s | {(lags_s - empty_s) / bare_s:.1f} |")
    report_more(used, idle)
    if options.floor:
        floor_s, used = await_read(
            job_folder(cluster, folder / "floor", options, OFFSETS_TOPIC), options.records, module=FLOOR
        )
        print(f"| … `{FLOOR}`, until all is read | {floor_s:.1f} s |")
        print(f"| … above the empty topic, in times of the reader's | {(floor_s - empty_s) / bare_s:.1f} |")
        report_more(used, idle)
        report_large(folder / "floor")
    report_large(folder)
    print(f"| load of the machine | {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores |")


def report_more(used: dict[str, Usage], idle: dict[str, Usage]) -> None:
    """Print what each program used beyond its use on an empty topic."""
    for name, usage in sorted(used.items()):
        more_s = usage.cpu_s - (idle[name].cpu_s if name in idle else 0)
        memory = f"{usage.rss_bytes / 2**20:,.0f} MiB"
        print(f"| … {name} | {usage.cpu_s:.1f} s of CPU time, {more_s:.1f} s of it above the empty topic; {memory} |")


def report_large(folder: Path) -> None:
    """Print how fast large batches were."""
    large = [batch for batch in batches(folder) if batch["rows"] >= ROWS_PER_BATCH // 2]
    rates = [f"{batch['rows'] / busy([batch]):,.0f}" for batch in large]
    print(f"| … of its large batches, records a second, the first one cold | {', '.join(rates)} |")
    if large:
        print(f"| … durations of the first, ms | {large[0]['durations_ms']} |")


def job_folder(cluster: EmbeddedCluster, folder: Path, options: argparse.Namespace, topic: str) -> Path:
    """Make a folder for another job, which reads a topic."""
    folder.mkdir()
    (folder / "monitor.toml").write_text(config(cluster, folder, options, topic))
    return folder


def await_read(folder: Path, records: int, module: str = JOB) -> tuple[float, dict[str, Usage]]:
    """Return after how many seconds a batch had ended and a job had read so much, and what its processes used."""
    begin = time.time()
    with running(folder, module) as job:
        while not batches(folder) or sum(batch["rows"] for batch in batches(folder)) < records:
            time.sleep(cold.POLL_S)
        return time.time() - begin, usage_of(job.pid)


@contextlib.contextmanager
def loaded(cluster: EmbeddedCluster, folder: Path, options: argparse.Namespace, seconds: float) -> Iterator[None]:
    """Keep the synthetic groups' heartbeats coming."""
    numbers = {"groups": options.groups, "members": options.members, "brokers": BROKERS, "seconds": seconds}
    flags = [f"--{name}={value}" for name, value in numbers.items()]
    flags += [f"--bootstrap-servers={cluster.bootstrap_servers}", f"--truth={folder}/truth.jsonl"]
    flags += [f"--deaths-per-s={options.deaths_per_s}", f"--die-after={START_S // 2}"]
    command = [sys.executable, "-m", "tests.benchmarks.load", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
        try:
            assert load.stdout is not None
            assert load.stdout.readline().strip() == "ready"
            yield
        finally:
            load.terminate()


@contextlib.contextmanager
def running(folder: Path, module: str = JOB) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", f"{folder}/monitor.toml", f"{folder}/batches.jsonl"]
    with (folder / "run.log").open("w") as log, subprocess.Popen(command, stderr=log, stdout=log, text=True) as job:
        try:
            yield job
            if job.poll() is not None:
                print((folder / "run.log").read_text()[-3000:], file=sys.stderr)
        finally:
            job.terminate()


def busy(chosen: list[dict[str, object]]) -> float:
    """Return for how many seconds batches ran."""
    return sum(batch["durations_ms"]["triggerExecution"] for batch in chosen) / 1000


def await_steady(folder: Path, most_rows: float) -> None:
    """Return once a batch has no more rows than this: the backlog of the start is worked off. Or after `START_S`."""
    give_up = time.monotonic() + START_S
    while time.monotonic() < give_up:
        done = batches(folder)
        if len(done) > 1 and done[-1]["rows"] <= most_rows:
            return
        time.sleep(0.2)
    print("| what was waiting at the start | not worked off |")


def batches(folder: Path) -> list[dict[str, object]]:
    file = folder / "batches.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def report_speed(when: str) -> None:
    """Print how fast the machine is now: without it, runs of different hours cannot be compared."""
    spans = []
    for _ in range(SPEED_LOOPS):
        begin = time.process_time()
        sum(number * number for number in range(100_000))
        spans.append(round((time.process_time() - begin) * 1000, 1))
    print(f"| {SPEED_LOOPS} loops of arithmetic, {when}, ms of CPU time | p50 {statistics.median(spans)} |")


def report_batches(folder: Path, since: float, until: float, trigger_ms: int) -> None:
    chosen = batches_between(folder, since, until)
    if not chosen:
        print("no batch ended in the measured part")
        return
    lines = sum(batch["rows"] for batch in chosen)
    print(f"| lines | {lines:,} in {len(chosen)} batches, {lines / (until - since):,.0f} a second |")
    report_spans("measured", chosen, trigger_ms)
    for part in ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets"):
        print(f"| … {part} | {statistics.mean(batch['durations_ms'].get(part, 0) for batch in chosen):.0f} ms |")
    print(f"| load of the machine | {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores |")


def batches_between(folder: Path, since: float, until: float) -> list[dict[str, object]]:
    stamps = [time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) for moment in (since, until)]
    return [batch for batch in batches(folder) if stamps[0] <= batch["at"] < stamps[1]]


def start_ms(batch: dict[str, object]) -> int:
    return round(datetime.fromisoformat(batch["at"]).timestamp() * 1000)


def report_spans(when: str, chosen: list[dict[str, object]], trigger_ms: int) -> None:
    spans = [batch["durations_ms"]["triggerExecution"] for batch in chosen]
    shares = ", ".join(f"{name} {value / trigger_ms:.0%}" for name, value in quantiles(spans).items())
    print(f"| batch duration, share of a {trigger_ms} ms trigger, {when} | {shares} |")


def report_usage(before: dict[str, Usage], after: dict[str, Usage], seconds: float) -> None:
    for name, usage in sorted(after.items()):
        cores = (usage.cpu_s - before.get(name, usage).cpu_s) / seconds
        print(f"| {name} | {cores:.2f} cores, {usage.rss_bytes / 2**20:,.0f} MiB |")


def report_detection(folder: Path, since: float, until: float) -> None:
    truth = [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]
    expected = {
        (row["group"], row["member_id"]): row["deadline_ms"]
        for row in truth
        if since * 1000 <= row["deadline_ms"] < until * 1000
    }
    with contextlib.closing(sqlite3.connect(folder / "monitor.db")) as database:
        rows = database.execute(
            "SELECT group_id, body, opened_ms, detected_ms FROM incidents WHERE rule = 'session-expired'"
        ).fetchall()
    found = {
        (group, json.loads(body)["member_id"]): (json.loads(body), opened, detected)
        for group, body, opened, detected in rows
    }
    extra = len(found.keys() - {(row["group"], row["member_id"]) for row in truth})
    hits = {key: found[key] for key in expected.keys() & found.keys()}
    print(f"| session-expired | {len(expected)} died, {len(expected) - len(hits)} missing, {extra} extra |")
    if not hits:
        return
    late = [detected - expected[key] for key, (_, _, detected) in hits.items()]
    decided = [detected - body["at_ms"] for body, _, detected in hits.values()]
    wrong = [abs(body["deadline_ms"] - expected[key]) for key, (body, _, _) in hits.items()]
    done = batches(folder)
    starts = [start_ms(batch) for batch in done]
    ends = [begin + batch["durations_ms"]["triggerExecution"] for begin, batch in zip(starts, done, strict=True)]
    began = {key: starts[bisect(starts, detected) - 1] for key, (_, _, detected) in hits.items()}
    waited = [began[key] - body["at_ms"] for key, (body, _, _) in hits.items()]
    worked = [detected - began[key] for key, (_, _, detected) in hits.items()]
    committed = [
        ends[bisect(ends, detected)] - expected[key] for key, (_, _, detected) in hits.items() if detected < ends[-1]
    ]
    print(f"| deadline to outbox, ms | {quantiles(late)} |")
    print(f"| deadline to the end of the batch, all committed, ms | {quantiles(committed)} |")
    print(f"| deciding instant to outbox, ms | {quantiles(decided)} |")
    print(f"| … of it until its batch began, ms | mean {statistics.mean(waited):.0f}, {quantiles(waited)} |")
    print(f"| … of it in the batch, ms | mean {statistics.mean(worked):.0f}, {quantiles(worked)} |")
    print(f"| deadline off by, ms | {quantiles(wrong)} |")


def report_state(folder: Path, members: int) -> None:
    newest = (batches(folder) or [{"state": None}])[-1]["state"]
    on_disk = sum(
        file.stat().st_size for file in (folder / "data").rglob("*") if file.is_file() and "state" in file.parts
    )
    print(f"| state | {newest} ; {on_disk / 2**20:,.0f} MiB of checkpoint files for {members:,} members |")


def quantiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    at = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: ordered[min(len(ordered) - 1, int(len(ordered) * share))] for name, share in at.items()}


if __name__ == "__main__":
    main()
