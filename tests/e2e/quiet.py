"""Quiet points: during random faults, the brokers' own answer about each group, and the replica at the same instant.

A group is quiet while Admin's DescribeGroups (ConsumerGroupDescribe for KIP-848) gives the same answer again and again
for `QUIET_MS`, longer than a heartbeat interval, and it is Stable or Empty: by then an answer or a record has shown all
that happened. In a rebalance nobody outside can know who has rejoined.
"""

import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from operator import itemgetter
from threading import Event
from typing import Any

from coordinator_model.decode.cluster_row import ClusterRow, read_cluster_row
from coordinator_model.decode.parse import RejectedRow, RowParser
from coordinator_model.decode.records import RecordType
from coordinator_model.decode.source_row import CLUSTER
from coordinator_model.errors import Error
from coordinator_model.events import (
    Answer,
    ConsumerHeartbeat,
    Heartbeat,
    JoinAnswered,
    LeaderNamed,
    OffsetCommitted,
    RecordRead,
    SyncAnswered,
    Tick,
    parked_ms,
)
from coordinator_model.events import Event as KafkaEvent
from coordinator_model.heartbeat_block import order
from coordinator_model.shard.shard import Shard, ShardSettings
from coordinator_model.shard.sharding import infer_partitions, shard_of
from coordinator_model.thresholds import Thresholds
from streaming.capture.file import open_text, read_rows
from streaming.embedded.truth import TruthEvent
from tests.e2e.asker import Asker
from tests.e2e.poll_truth import NO_COORDINATOR
from tests.e2e.world import CONSUMER_SESSION_MS, Described, Played, World

QUIET_MS = 2_500
BETWEEN_MS = 10_000
"""Between two points of one group."""
ASK_EVERY_S = 0.8
SETTLED = ("Stable", "Empty")
STALLED_MS = Thresholds().stalled_write_ms
MOST_SET_ASIDE = 0.05
"""The share of all quiet points at which the replica may differ while a write is pending. It was fewer in fifteen
minutes with fourteen brokers killed or paused. A run with more looked away too often to say that nothing was wrong."""


@dataclass
class _Answer:
    truth: Described
    since_ms: int
    """By when this answer was first given."""
    kept_ms: int


class Watcher:
    """The brokers' answers about each group so far, and which of them make a quiet point."""

    def __init__(self) -> None:
        self._answers: dict[str, _Answer] = {}

    def hear(self, asked_ms: int, answered_ms: int, told: dict[str, Described]) -> list[dict[str, Any]]:
        """Take the answers to one question and return the quiet points: each as of the instant of the question.

        An answer was given at some instant between question and answer, which are seconds apart while a broker is
        paused. So the quiet time counts from the end of that interval, and lasts at most until the beginning of it.
        """
        points = []
        for group in self._answers.keys() - told.keys():
            self._answers[group].since_ms = answered_ms  # nobody answers for it: what it does meanwhile is not known
        for group, truth in told.items():
            last = self._answers.setdefault(group, _Answer(truth, answered_ms, 0))
            if truth != last.truth:
                self._answers[group] = _Answer(truth, answered_ms, last.kept_ms)
            elif truth["state"] in SETTLED and asked_ms >= max(last.since_ms + QUIET_MS, last.kept_ms + BETWEEN_MS):
                points.append({"group": group, "at_ms": asked_ms, **truth})
                last.kept_ms = asked_ms
        return points


def watch(world: World, stop: Event) -> None:
    """Ask the brokers until `stop`, and have the world keep each quiet point."""
    watcher = Watcher()
    with Asker(world.cluster.bootstrap_servers) as asker:
        while not stop.wait(ASK_EVERY_S):
            asked_ms = _now_ms()
            told = asker.every({client.spec.group for client in list(world.clients)})
            world.moments.extend(watcher.hear(asked_ms, _now_ms(), told))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Findings:
    """The results of a capture's quiet points; ``wrong`` says, for people, where the replica was not as described."""

    agreed: int = 0
    untold: int = 0
    """Points at which they differed while a write was pending: the coordinator had applied something that no answer and
    no readable record had shown, or had made a record that the brokers describe only once it is committed. Or another
    coordinator had loaded the group, and neither an answer nor metadata had shown it."""
    wrong: list[str] = field(default_factory=list)

    @property
    def asked(self) -> int:
        """All points, including those set aside."""
        return self.agreed + self.untold + len(self.wrong)

    @property
    def right(self) -> bool:
        """Whether the replica agreed with the brokers, at nearly every point."""
        return not self.wrong and self.untold <= MOST_SET_ASIDE * self.asked


def compare(played: Played) -> Findings:
    """Compare the replica with the brokers at each quiet point."""
    moments = sorted(played.moments, key=lambda moment: moment["at_ms"])
    by_shard, partitions = _events(played, {moment["group"] for moment in moments})
    unseen = unseen_loads(played.truth, by_shard)
    settings = ShardSettings(
        cluster="c",
        partitions=partitions,
        live_from_ms=min(event.order_ms for event in chain(*by_shard.values())),
        consumer_session_timeouts_ms={"": CONSUMER_SESSION_MS},
    )
    waits = {number: _waits(events) for number, events in by_shard.items()}
    shards = {number: Shard.restore(number, settings, None) for number in by_shard}
    found = Findings()
    for moment in moments:
        group, at_ms = moment["group"], moment["at_ms"]
        number = shard_of(group, partitions)
        events = by_shard[number]
        until = bisect_right(events, at_ms, key=itemgetter(0))
        shards[number].apply(events[:until], final=True)
        del events[:until]
        ours = [described(view) for view in shards[number].views() if view["group"] == group]
        theirs = {"state": moment["state"], "members": numbers(moment["members"])}
        if ours == [theirs]:
            found.agreed += 1
        elif any(
            since <= at_ms < until for since, until in (*waits[number][group], *waits[number][""], *unseen[number])
        ):
            found.untold += 1
        else:
            found.wrong.append(f"{group} at {at_ms}\n  brokers {theirs}\n  replica {ours}")
    return found


def _waits(events: Iterable[KafkaEvent]) -> dict[str, list[tuple[int, float]]]:
    """Return by group from when to when something that was applied had not been shown and could not be read.

    A JoinGroup, SyncGroup or KIP-848 heartbeat of the group with a change waited for its answer. Or KIP-848 records had
    been made: until they are committed, the brokers describe such a group as it was before. For all groups (""): a
    heartbeat waited, which waits only for what was written before it.
    """
    found = defaultdict[str, list[tuple[int, float]]](list)
    made = defaultdict[str, set[int]](set)
    let_go: list[tuple[int, int]] = []
    joins: list[JoinAnswered] = []
    for event in events:
        if isinstance(event, JoinAnswered | SyncAnswered):
            found[event.group].append((event.arrival_ms, event.answer_ms))
            joins += [event] if isinstance(event, JoinAnswered) else []
        elif isinstance(event, RecordRead) and event.record_type != RecordType.GROUP_METADATA:
            made[event.group].add(event.order_ms)
        elif isinstance(event, Heartbeat | ConsumerHeartbeat):
            answer_ms = event.applied_ms + event.remote_ms
            if isinstance(event, ConsumerHeartbeat):
                found[event.group].append((event.arrival_ms, answer_ms))
            if event.remote_ms >= STALLED_MS:
                found[""].append((event.applied_ms, answer_ms))
            if event.error == 0:
                let_go.append((event.applied_ms, answer_ms))
    for group, instants in made.items():
        found[group] += committed(instants, let_go)
    for group, span in taken_back(joins):
        found[group].append(span)
    return found


def unseen_loads(
    truth: Iterable[TruthEvent], by_shard: Mapping[int, Iterable[KafkaEvent]]
) -> dict[int, list[tuple[int, float]]]:
    """Return by shard the times from a broker's load of its groups to the first answer or metadata that shows it.

    The broker describes what it loads, which is in the log; a rebalance of its predecessor is not. The next load of the
    shard ends such a time, too.
    """
    found = defaultdict[int, list[tuple[int, float]]](list)
    told = {number: [(e.order_ms, _teller(e)) for e in events if _teller(e)] for number, events in by_shard.items()}
    loads = [event for event in truth if event.kind == "coordinator-loaded" and event.partition in told]
    for load in loads:
        ends = [ms for ms, who in told[load.partition] if who == load.broker and ms >= load.at_ms]
        ends += [other.at_ms for other in loads if other.partition == load.partition and other.at_ms > load.at_ms]
        found[load.partition].append((load.at_ms, min(ends, default=inf)))
    return found


def _teller(event: KafkaEvent) -> str:
    """Return the broker that an event shows to coordinate its shard; "" if none."""
    if isinstance(event, LeaderNamed):
        return event.key
    return event.broker if isinstance(event, Answer) and event.error not in NO_COORDINATOR else ""


def taken_back(joins: Iterable[JoinAnswered]) -> Iterator[tuple[str, tuple[int, float]]]:
    """Yield by group when coordinator and log may contradict each other about a static member (docs/model.md).

    The write of its replacement timed out (15): the coordinator has the former member again, but the replacement may be
    in the log. This lasts until the instance asks again.
    """
    since = dict[tuple[str, str], int]()
    for join in joins:
        if join.instance_id is None:
            continue
        key = (join.group, join.instance_id)
        if key in since:
            yield join.group, (since.pop(key), join.arrival_ms)
        if (
            join.error == Error.COORDINATOR_NOT_AVAILABLE
            and not join.request_member_id
            and parked_ms(join) >= STALLED_MS
        ):
            since[key] = join.arrival_ms
    for (group, _), at_ms in since.items():
        yield group, (at_ms, inf)


def committed(made_ms: Iterable[int], let_go: list[tuple[int, int]]) -> Iterator[tuple[int, float]]:
    """Yield for each record from when it was made to when it was committed at the latest.

    ``let_go``: accepted heartbeats of its partition, when each was applied and when answered. A coordinator answers one
    only after all that was written before it is committed.
    """
    let_go = sorted(let_go)
    for at_ms in made_ms:
        after = bisect_left(let_go, (at_ms, 0))
        yield at_ms, let_go[after][1] if after < len(let_go) else inf


def described(view: dict[str, Any]) -> dict[str, Any]:
    """Return a group object as `Asker.every` would, without topics: each group has one here."""
    owned = {m["member_id"]: [n for held in m["assignment"] for n in held["partitions"]] for m in view["members"]}
    return {"state": view["state"], "members": {member: sorted(held) for member, held in owned.items()}}


def numbers(members: dict[str, list[list[Any]]]) -> dict[str, list[int]]:
    """Return by member the partitions that it owns, without their topic."""
    return {member: sorted(number for _, number in owned) for member, owned in members.items()}


def _events(played: Played, groups: Iterable[str]) -> tuple[dict[int, list[KafkaEvent]], int]:
    """Return the capture's events by shard, for the shards of these groups only, with probes in each; and their number.

    They are numbered in order: a shard that is fed up to an instant takes an offset below the last one for a duplicate.
    """
    reader, events, cluster = RowParser(), list[KafkaEvent](), list[ClusterRow]()
    with open_text(played.capture) as lines:
        for row in read_rows(lines):
            if row.source == CLUSTER:
                cluster.append(read_cluster_row(row.value or b""))
                continue
            read = reader.read(row)
            events += [] if isinstance(read, RejectedRow) else read
    records = [event for event in events if isinstance(event, RecordRead | OffsetCommitted)]
    partitions = infer_partitions({(event.group, event.partition) for event in records})
    by_shard = defaultdict[int, list[KafkaEvent]](list)
    wanted = {shard_of(group, partitions) for group in groups}
    for event in sorted([*events, *(named for row in cluster for n in wanted if (named := row.named(n)))], key=order):
        for number in _shards(event, partitions, wanted):
            mine = by_shard[number]
            mine.append(event if isinstance(event, LeaderNamed) else event._replace(offset=len(mine)))
    return by_shard, partitions


def _shards(event: KafkaEvent, partitions: int, wanted: set[int]) -> set[int]:
    """Return the shards that an event is for; a probe's line is for all."""
    if isinstance(event, Tick):
        return wanted
    return {event.partition if isinstance(event, LeaderNamed) else shard_of(event.group, partitions)} & wanted
