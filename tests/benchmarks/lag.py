"""What lag costs the driver: memory per partition, time of a batch of commits, a round, a judgement, end offsets.

240,000 partitions (10,000 groups of 24) without a broker, then the end offsets of 10,000 partitions of a real one.
"""

import base64
import marshal
import os
import resource
import sqlite3
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from kafka import KafkaAdminClient

from coordinator_model.commit_block import CommitBlock, key_of
from coordinator_model.group_report import GroupReport
from coordinator_model.thresholds import Thresholds
from streaming.embedded import EmbeddedCluster
from streaming.run.lag import group_lags
from streaming.run.lag.commit_table import CommitTable
from streaming.run.lag.end_offsets import EndOffsets
from streaming.run.lag.group_lags import GroupLags
from streaming.run.lag.rounds import Place, Round
from streaming.run.packing import pack_commits
from streaming.run.worker import without_collections

PARTITIONS, TOPICS = 24, 500
LARGE = 100_000
COMMITS = 16_000
WINDOW_BATCHES = 12
INTERVAL_MS = 5_000
START_MS = 1_790_000_000_000
HOUR_MS = 3_600_000
ASKED_TOPICS, ASKED_PARTITIONS = 100, 100
CREATED_AT_ONCE = 20
ROUNDS = 10


def main(groups: int) -> None:
    """Print a row per measurement."""
    print("| what | measured |\n| --- | --- |")
    with tempfile.TemporaryDirectory(prefix="group-monitor-bench-") as folder:
        of_columns(Path(folder), groups)
        of_a_first_round(Path(folder) / "first", groups)
        of_a_large_group(Path(folder) / "large")
    of_a_broker()


def of_columns(folder: Path, groups: int) -> None:
    """Measure the table, the journal, a round, and the core's judgements."""
    keys = [
        key_of(f"group-{group}", f"topic-{group % TOPICS}", n) for group in range(groups) for n in range(PARTITIONS)
    ]
    before = rss_bytes()
    lags = GroupLags("bench", folder)
    batches = iter(range(1_000_000))
    for outputs in commits(keys, 0):
        lags.apply(next(batches), outputs, thresholds, judge=False)
    row("partitions", f"{len(keys):,}")
    row("memory a partition (10 commits of it)", f"{(rss_bytes() - before) / len(keys):,.0f} bytes")
    spent: list[float] = []
    for number in range(1, WINDOW_BATCHES):
        lags.add_round(a_round(START_MS + number * INTERVAL_MS, behind=0))
        for outputs in commits(keys, number):
            began_s = time.process_time()
            lags.apply(next(batches), outputs, thresholds, judge=False)
            spent.append(time.process_time() - began_s)
    row(f"{COMMITS:,} commits, taken in and written to the journal", f"{1_000 * np.median(spent):.1f} ms")
    views = [a_report(group) for group in range(groups)]
    row("views of all groups", timed(lambda: lags.apply(next(batches), views, thresholds, judge=False)))
    group_lags.JUDGE_S = float("inf")
    for behind, what in ((0, "nobody is behind"), (100, "all are behind")):
        at_ms = START_MS + (WINDOW_BATCHES + behind) * INTERVAL_MS
        lags.add_round(a_round(at_ms, behind=behind))
        lags.apply(next(batches), [], thresholds, judge=False)
        lags.read_until(2 * at_ms)
        with without_collections():  # as `run` applies a batch
            took = timed(lambda: lags.apply(next(batches), [], thresholds, judge=True))
        row(f"a round in which every group is judged, {what}", took)
    began_s = time.process_time()
    state = marshal.dumps(lags._table.dump(), 2)
    row("all columns, as bytes", f"{len(state) / 2**20:.0f} MiB, {1_000 * (time.process_time() - began_s):.0f} ms")
    row("the same as text and back, as Spark's state would carry it in every batch", timed(lambda: as_text(state)))
    row(f"{COMMITS:,} rows of {len(keys):,} updated in SQLite", in_sqlite(folder, keys))
    row("a snapshot, written", timed(lambda: lags.__exit__(None)))
    row("the snapshot, read", timed(lambda: GroupLags("bench", folder)))


def of_a_first_round(folder: Path, groups: int) -> None:
    """Measure the first judgement of groups that are all behind: they committed once, an hour ago, nobody is heard."""
    keys = [
        key_of(f"group-{group}", f"topic-{group % TOPICS}", n) for group in range(groups) for n in range(PARTITIONS)
    ]
    group_lags.FIRST_S = float("inf")
    lags = GroupLags("bench", folder)
    batches = iter(range(1_000_000))
    for outputs in commits(keys, 0):
        lags.apply(next(batches), outputs, thresholds, judge=False)
    lags.apply(next(batches), [a_report(group, "unknown") for group in range(groups)], thresholds, judge=False)
    at_ms = START_MS + HOUR_MS
    lags.add_round(a_round(at_ms, behind=100))
    lags.apply(next(batches), [], thresholds, judge=False)
    lags.read_until(2 * at_ms)
    with without_collections():
        row(
            "a first round, all are behind, nobody is heard",
            timed(lambda: lags.apply(next(batches), [], thresholds, judge=True)),
        )


def of_a_large_group(folder: Path) -> None:
    """Measure the judgement of one group that has committed 100,000 partitions a moment ago, and is behind on all."""
    topics, partitions = LARGE // 1_000, 1_000
    keys = [key_of("large", f"topic-{topic}", number) for topic in range(topics) for number in range(partitions)]
    lags = GroupLags("bench", folder)
    batches = iter(range(1_000_000))
    for outputs in commits(keys, 0):
        lags.apply(next(batches), outputs, thresholds, judge=False)
    told = a_report(0, "unknown")
    told = replace(told, group="large", view={**(told.view or {}), "group": "large"})
    lags.apply(next(batches), [told], thresholds, judge=False)
    at_ms = START_MS + INTERVAL_MS
    lags.add_round(a_round(at_ms, behind=100, topics=topics, partitions=partitions))
    lags.apply(next(batches), [], thresholds, judge=False)
    lags.read_until(2 * at_ms)
    with without_collections():
        took = timed(lambda: lags.apply(next(batches), [], thresholds, judge=True))
    row(f"a round in which one group of {len(keys):,} partitions is judged, it is behind on all", took)


def in_sqlite(folder: Path, keys: list[bytes]) -> str:
    """Do what a batch would do if commits were rows of a table: only the newest, without their windows."""
    with closing(sqlite3.connect(folder / "commits.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE commits (key BLOB PRIMARY KEY, place INT, at_ms INT, record INT) WITHOUT ROWID")
        upsert = "INSERT INTO commits VALUES (?, 1, 2, 3) ON CONFLICT (key) DO UPDATE SET place = 4, at_ms = 5"
        database.executemany(upsert, ((key,) for key in keys))
        database.commit()
        chosen = [(key,) for key in keys[:: len(keys) // COMMITS]][:COMMITS]

        def update() -> None:
            database.executemany(upsert, chosen)
            database.commit()

        return timed(update)


def as_text(state: bytes) -> None:
    """Do what the operator would do at both ends of a batch."""
    marshal.loads(base64.b64decode(base64.b64encode(state).decode("ascii")))  # noqa: S302
    CommitTable()


def commits(keys: list[bytes], number: int) -> Iterator[list[dict[str, Any]]]:
    """Yield batches in which each partition commits once, in one block per operator key."""
    for start in range(0, len(keys), COMMITS):
        outputs = []
        for first in range(start, min(start + COMMITS, len(keys)), COMMITS // 16):
            own = keys[first : first + COMMITS // 16]
            at, at_ms = number * len(keys) + first, START_MS + number * INTERVAL_MS
            columns = [array("q", [value]) * len(own) for value in (at_ms, 100 + number, at_ms, 3, 1)]
            records = array("q", range(at, at + len(own)))
            block = CommitBlock(tuple(own), records, *columns, (b"",) * len(own), {})
            packed = base64.b64encode(pack_commits(block)).decode()
            outputs.append({"kind": "commits", "cluster": "bench", "shard": 0, "at_ms": at_ms, "block": packed})
        yield outputs


def a_round(at_ms: int, behind: int, topics: int = TOPICS, partitions: int = PARTITIONS) -> Round:
    size = topics * partitions
    places = {f"topic-{topic}": Place(None, topic * partitions, partitions) for topic in range(topics)}
    ends, nothing = np.full(size, 100 + WINDOW_BATCHES - 1 + behind, np.int64), np.zeros(size, np.int64)
    return Round(at_ms, at_ms, places, ends, nothing, np.full(size, at_ms), nothing)


def a_report(group: int, liveness: str = "alive") -> GroupReport:
    members = [
        {
            "member_id": f"member-{group}-{number}",
            "instance_id": None,
            "client_id": "worker",
            "client_host": "10.0.0.7",
            "liveness": liveness,
            "generation": 3,
            "max_poll_interval_ms": 300_000,
            "joined_ms": START_MS,
            "rejoin_reason": None,
            "assignment": [
                {"topic": f"topic-{group % TOPICS}", "partitions": list(range(number, PARTITIONS, 4))},
            ],
        }
        for number in range(4)
    ]
    view = {
        "cluster": "bench",
        "group": f"group-{group}",
        "type": "classic",
        "state": "Stable",
        "generation": 3,
        "incarnation": 1,
        "coordinator": "broker-1",
        "stable_since_ms": START_MS,
        "members": members,
    }
    return GroupReport(cluster="bench", shard=0, group=f"group-{group}", at_ms=START_MS, view=view)


def of_a_broker() -> None:
    """Measure rounds over many partitions of one broker."""
    names = [f"topic-{number}" for number in range(ASKED_TOPICS)]
    with EmbeddedCluster(telemetry=False, create_telemetry_topic=False) as cluster:
        client = {"bootstrap_servers": cluster.bootstrap_servers}
        with closing(KafkaAdminClient(**client)) as admin:
            topics = {name: {"num_partitions": ASKED_PARTITIONS, "replication_factor": 1} for name in names}
            for start in range(0, len(names), CREATED_AT_ONCE):
                some = names[start : start + CREATED_AT_ONCE]
                admin.create_topics({name: topics[name] for name in some}, wait_for_metadata=False)
            asked = EndOffsets(client, lambda: names)
            while asked.unanswered or len(asked.newest.places) < len(names):
                time.sleep(1)
                asked.ask(admin._manager, frozenset(names))
            ours, brokers, took = [], [], []
            for _ in range(ROUNDS):
                began = time.process_time(), cpu_s(cluster.node(1).pid), time.monotonic()
                asked.ask(admin._manager, frozenset(names))
                ended = time.process_time(), cpu_s(cluster.node(1).pid), time.monotonic()
                for spent, before, after in zip((ours, brokers, took), began, ended, strict=True):
                    spent.append(1_000 * (after - before))
    what = f"{ASKED_TOPICS * ASKED_PARTITIONS:,} partitions, their ends and first offsets"
    row(f"a round of {what}: ours", f"{np.median(ours):.0f} ms of CPU time, {np.median(took):.0f} ms")
    row("its broker's", f"{np.mean(brokers):.0f} ms of CPU time")


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def timed(what: Any) -> str:
    began_s = time.process_time()
    what()
    return f"{1_000 * (time.process_time() - began_s):,.0f} ms"


def thresholds(_: str) -> Thresholds:
    return Thresholds()


def row(what: str, measured: str) -> None:
    print(f"| {what} | {measured} |", flush=True)
