"""What a heartbeat's line and an offset commit cost, step by step, in one process: `python -m tests.benchmarks line`.

Processor time, not wall time; the median of some seconds of load once everything is warm. `replay` is the path of that
command: line to event to replica, without Spark.
"""

import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from coordinator_model.decode.parse import OFFSETS, TELEMETRY, RowParser, SourceRow, parse_row
from coordinator_model.shard.shard import Shard
from coordinator_model.shard.shard_settings import ShardSettings
from coordinator_model.shard.sharding import shard_of
from streaming.run.packing import Routing, commit_block, commits_in, events_in, heartbeats_in, unpack
from streaming.run.source import PackRows
from tests.benchmarks import synthetic
from tests.benchmarks.synthetic import Member
from tests.support import records as encoder

START_MS = 1_800_000_000_000
PARTITIONS, BROKERS, INTERVAL_S = 50, 4, 3
WARM_S, MEASURED_S = 24, 9
SCHEMA = {
    "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "timestamp_ms": pa.int64(),
    "key": pa.binary(), "value": pa.binary(),
}  # fmt: skip


class Load:
    """Every member's heartbeat every three seconds, one second at a time."""

    def __init__(self, groups: int, members: int) -> None:
        self.groups = {f"bench-group-{n:05d}": [Member(n * members + m) for m in range(members)] for n in range(groups)}
        beats = [(group, member) for group, listed in self.groups.items() for member in listed]
        self._beats = [beats[second::INTERVAL_S] for second in range(INTERVAL_S)]
        self._offsets = [0] * BROKERS

    def records(self) -> list[SourceRow]:
        made = []
        for offset, (group, members) in enumerate(self.groups.items()):
            key, value = synthetic.group_record(group, 1, members, START_MS)
            made.append(SourceRow(OFFSETS, "offsets", shard_of(group, PARTITIONS), offset, START_MS, key, value))
        return made

    def second(self, number: int) -> list[SourceRow]:
        rows = []
        beats = self._beats[number % INTERVAL_S]
        for place, (group, member) in enumerate(beats):
            broker = shard_of(group, PARTITIONS) % BROKERS
            self._offsets[broker] += 1
            at_ms = START_MS + number * 1_000 + place * 1_000 // len(beats)
            line = synthetic.heartbeat_line(group, member, 1)
            rows.append(
                SourceRow(TELEMETRY, "lines", broker, self._offsets[broker], at_ms, b"broker-%d" % broker, line)
            )
        return sorted(rows, key=lambda row: (row.partition, row.offset))


class CommitLoad(Load):
    """Every member commits its partition every three seconds, and the only lines are probes."""

    def second(self, number: int) -> list[SourceRow]:
        beats, at_ms, rows = self._beats[number % INTERVAL_S], START_MS + number * 1_000, []
        for place, (group, member) in enumerate(beats):
            key = encoder.commit_key(group, synthetic.TOPIC, member.number)
            value = encoder.commit_value(number, at_ms)
            offset, written_ms = number * len(beats) + place, at_ms + place * 1_000 // len(beats)
            rows.append(SourceRow(OFFSETS, "offsets", shard_of(group, PARTITIONS), offset, written_ms, key, value))
        probe = synthetic.probe_line(number)
        lines = [SourceRow(TELEMETRY, "lines", n, number, at_ms + 999, b"broker-%d" % n, probe) for n in range(BROKERS)]
        return [*sorted(rows, key=lambda row: (row.partition, row.offset)), *lines]


def main(groups: int, members: int) -> None:
    settings = ShardSettings(cluster="bench", partitions=PARTITIONS, live_from_ms=START_MS)
    for step, costs in _live(CommitLoad(groups, members), settings)[0].items():
        print(f"| commit, {step} | {statistics.median(costs):.2f} us |")
    load = Load(groups, members)
    live, state_bytes = _live(load, settings)
    for step, costs in {**live, **_replay(load, settings)}.items():
        cost_us = statistics.median(costs)
        print(f"| {step} | {cost_us:.2f} us a line, {1e6 / cost_us:,.0f} a second |")
    print(f"| state | {state_bytes / (groups * members):.0f} bytes a member |")


def _live(load: Load, settings: ShardSettings) -> tuple[dict[str, list[float]], int]:
    """Run the job's stages; return the cost of each, and the size of all state at the end."""
    shards: dict[str, Shard] = {}
    costs: dict[str, list[float]] = {"pack": [], "unpack": [], "apply": [], "dump": []}
    state_bytes = 0
    with tempfile.TemporaryDirectory() as folder:
        pack = PackRows(Routing(PARTITIONS), "offsets", Path(folder) / "live-keys.json", live_from_ms=START_MS)
        for second in range(WARM_S + MEASURED_S):
            rows = load.records() if second == 0 else load.second(second)
            batch = _arrow(rows)
            stamps = [time.process_time()]
            packed = [(row["key"], row["payload"]) for made in pack(iter([batch])) for row in made.to_pylist()]
            stamps.append(time.process_time())
            payloads = {key: unpack([payload]) for key, payload in packed}
            told = {
                key: (events_in(read), heartbeats_in(read), [*map(commit_block, commits_in(read))])
                for key, read in payloads.items()
            }
            stamps.append(time.process_time())
            for key, (events, blocks, commits) in told.items():
                shard = shards.get(key) or shards.setdefault(key, Shard.restore(int(key), settings, None))
                shard.apply(events, heartbeats=blocks, commits=commits, wall_ms=rows[-1].timestamp_ms + 50)
            stamps.append(time.process_time())
            state_bytes = sum(len(part) for shard in shards.values() for part in shard.dump()[1:])
            stamps.append(time.process_time())
            if second >= WARM_S:
                for index, step in enumerate(costs):
                    costs[step].append((stamps[index + 1] - stamps[index]) * 1e6 / len(rows))
    return costs, state_bytes


def _replay(load: Load, settings: ShardSettings) -> dict[str, list[float]]:
    reader, shards = RowParser(), {n: Shard.restore(n, settings, None) for n in range(PARTITIONS)}
    costs = []
    for second in range(WARM_S, WARM_S + 2 * INTERVAL_S + MEASURED_S):
        rows = load.second(second) if second > WARM_S else load.records()
        begin = time.process_time()
        events = [event for row in rows for event in _events(reader, row)]
        routed: dict[int, list[object]] = {}
        for event in events:
            routed.setdefault(shard_of(event[5], PARTITIONS), []).append(event)
        for number, listed in routed.items():
            shards[number].apply(listed, final=True)  # type: ignore[arg-type]
        if second > WARM_S + 2 * INTERVAL_S:
            costs.append((time.process_time() - begin) * 1e6 / len(rows))
    return {"replay, line to replica": costs}


def _events(reader: RowParser, row: SourceRow) -> list[object]:
    events = reader.read(row) if row.source == TELEMETRY else parse_row(row)
    assert isinstance(events, list)
    return list(events)


def _arrow(rows: list[SourceRow]) -> pa.RecordBatch:
    columns = zip(*(row[1:] for row in rows), strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(SCHEMA))
