"""What batches say of groups, and rounds of end offsets, for tests of lag without a broker."""

import base64
from array import array
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from coordinator_model.commit_block import NO_OFFSET, CommitBlock, key_of
from coordinator_model.group_report import GroupReport, JudgedBy, of_kind, reports_in
from coordinator_model.thresholds import Thresholds
from streaming.run.lag.group_lags import GroupLags
from streaming.run.lag.rounds import Place, Round
from streaming.run.packing import pack_commits

T0 = 1_790_000_000_000
CLUSTER = "prod"


def block(*rows, metadata=None):
    """Rows: group, topic, partition, committed offset (None: a tombstone), record offset, instant, count, topic id."""
    full = [(*row, *(0, T0, 1, b"")[len(row) - 4 :]) for row in rows]

    def column(at):
        return array("q", [row[at] for row in full])

    return CommitBlock(
        keys=tuple(key_of(*row[:3]) for row in full),
        record_offsets=column(4),
        record_ms=column(5),
        offsets=array("q", [NO_OFFSET if row[3] is None else row[3] for row in full]),
        commit_ms=column(5),
        leader_epochs=array("q", [3] * len(full)),
        counts=column(6),
        topic_ids=tuple(row[7] for row in full),
        metadata=metadata or {},
    )


def commits(*rows, **more):
    """The output of an operator key, in a batch that began when all was written."""
    made = block(*rows, **more)
    packed = base64.b64encode(pack_commits(made)).decode()
    at_ms = max(made.record_ms, default=T0)
    return {"kind": "commits", "cluster": CLUSTER, "shard": 3, "at_ms": at_ms, "block": packed}


def member(member_id, topic="orders", partitions=(0,), **changes):
    return {
        "member_id": member_id,
        "instance_id": None,
        "client_id": "worker",
        "client_host": "10.0.0.7",
        "liveness": "alive",
        "generation": 3,
        "max_poll_interval_ms": 300_000,
        "joined_ms": T0 - 60_000,
        "rejoin_reason": None,
        "assignment": [{"topic": topic, "partitions": list(partitions)}],
        **changes,
    }


def report(group, *members, at_ms=T0, deleted=False, **changes):
    """A shard's report of a group."""
    view = {
        "cluster": CLUSTER,
        "group": group,
        "type": "classic",
        "state": "Stable",
        "generation": 3,
        "incarnation": 1,
        "coordinator": "broker-1",
        "stable_since_ms": T0 - 60_000,
        "members": list(members),
        **changes,
    }
    return GroupReport(cluster=CLUSTER, shard=3, group=group, at_ms=at_ms, view=view, deleted=deleted)


def round_of(at_ms, ends, starts=None, ids=None, gone=()):
    """A round: topic -> end offsets by partition, None: not told."""
    places, flat, first_flat = {}, [], []
    for topic, told in ends.items():
        places[topic] = Place((ids or {}).get(topic, f"id-of-{topic}"), len(flat), len(told))
        flat += [NO_OFFSET if end is None else end for end in told]
        first_flat += (starts or {}).get(topic, [0] * len(told))
    columns = np.array(flat, np.int64)
    asked_ms = np.where(columns == NO_OFFSET, NO_OFFSET, at_ms)
    firsts = np.array(first_flat, np.int64)
    return Round(at_ms, at_ms, places, columns, firsts, asked_ms, asked_ms * 0, gone=frozenset(gone))


class Lags:
    """A checkpoint's lags: batches and rounds, and what was said last."""

    def __init__(self, folder, committed=None):
        self.folder = folder
        self.lags = GroupLags(CLUSTER, folder, committed)
        self.batch, self.said = -1 if committed is None else committed, []

    def apply(self, *outputs, judge=True, batch=None):
        """Apply the next batch, or one of a number; returns what it adds to the outputs."""
        self.batch = self.batch + 1 if batch is None else batch
        told = self.lags.apply(self.batch, outputs, lambda _: Thresholds(), judge=judge)
        judged = (report for report in reports_in(told) if report.judged is JudgedBy.LAG)
        self.said = [said for pair in zip(of_kind(told, "partitions"), judged, strict=True) for said in pair]
        return self.said

    def ask(self, at_ms, ends, stable=MappingProxyType({}), **more):
        """Ask a round, and the last stable offsets of the suspects: their ends, unless `stable` tells others."""
        suspects = [(topic, number) for topic, numbers in self.lags.suspects().items() for number in numbers]
        known = {(topic, n): ends[topic][n] for topic, n in suspects if n < len(ends.get(topic, ()))}
        stable = {place: offset for place, offset in (known | stable).items() if place in known and offset is not None}
        self.lags.add_round(replace(round_of(at_ms, ends, **more), stable=stable))

    def round(self, at_ms, ends, *outputs, **more):
        """Ask a round, apply the batch that began after it, and judge in the next."""
        self.ask(at_ms, ends, **more)
        self.apply(*outputs)
        self.lags.read_until(at_ms)
        return self.apply()

    def rows(self, group):
        """Return topic, partition, committed offset, end offset, lag of each row of a group that was said."""
        return self.rows_after([output for output in of_kind(self.said, "partitions") if output["group"] == group])

    def rows_after(self, said):
        """Return the same of a group that is the only one."""
        found = list(of_kind(said, "partitions"))
        return rows_of(found[-1]) if found else None


def rows_of(output):
    columns = output["columns"]
    topics = [name for name, _, rows in columns["topics"] for _ in range(rows)]
    names = ("partition", "committed_offset", "end_offset", "lag")
    return list(zip(topics, *(columns[name] for name in names), strict=True))
