"""Quiet points: while faults rain, the brokers' own answer about each group, and the replica as it was at that instant.

A group is quiet while Admin's DescribeGroups (ConsumerGroupDescribe for KIP-848) says the same again and again for
`QUIET_MS`, longer than a heartbeat interval, and it is Stable or Empty: by then all that happened has been told by an
answer or a record. In a rebalance nobody outside can know who has rejoined.
"""

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from threading import Event
from typing import Any

from coordinator_model.events import Event as KafkaEvent
from coordinator_model.events import OffsetCommitted, RecordRead, Tick
from coordinator_model.ingest import Reader, Rejected
from coordinator_model.shard import Shard, ShardSettings
from coordinator_model.sharding import infer_partitions, shard_of
from streaming.capture_file import open_text, read_rows
from tests.e2e.asker import Asker
from tests.e2e.world import CONSUMER_SESSION_MS, Described, Played, World

QUIET_MS = 2_500
BETWEEN_MS = 10_000
"""Between two points of one group: each costs a replay of all that went before."""
ASK_EVERY_S = 0.8
SETTLED = ("Stable", "Empty")


@dataclass
class _Answer:
    truth: Described
    since_ms: int
    kept_ms: int


def watch(world: World, stop: Event) -> None:
    """Ask the brokers until `stop`, and have the world keep each quiet point."""
    answers: dict[str, _Answer] = {}
    with Asker(world.cluster.bootstrap_servers) as asker:
        while not stop.wait(ASK_EVERY_S):
            asked_ms = time.time_ns() // 1_000_000
            told = asker.every({client.spec.group for client in list(world.clients)})
            for group in answers.keys() - told.keys():
                answers[group].since_ms = asked_ms  # nobody answers for it: what it does meanwhile is not known
            for group, truth in told.items():
                last = answers.setdefault(group, _Answer(truth, asked_ms, 0))
                if truth != last.truth:
                    answers[group] = _Answer(truth, asked_ms, last.kept_ms)
                elif truth["state"] in SETTLED and asked_ms >= max(last.since_ms + QUIET_MS, last.kept_ms + BETWEEN_MS):
                    world.moments.append({"group": group, "at_ms": asked_ms, **truth})
                    last.kept_ms = asked_ms


def disagreements(played: Played) -> list[str]:
    """Return, for people, each quiet point at which the replica was not what the brokers said."""
    moments = played.moments
    by_shard, partitions = _events(played, {moment["group"] for moment in moments})
    settings = ShardSettings(
        cluster="c",
        partitions=partitions,
        live_from_ms=min(event[0] for event in chain(*by_shard.values())),
        consumer_session_timeouts_ms={"": CONSUMER_SESSION_MS},
    )
    found = []
    for moment in moments:
        group, at_ms = moment["group"], moment["at_ms"]
        number = shard_of(group, partitions)
        shard = Shard.restore(number, settings, None)
        shard.apply([event for event in by_shard[number] if event[0] <= at_ms], final=True)
        ours = [described(view) for view in shard.views() if view["group"] == group]
        theirs = {"state": moment["state"], "members": numbers(moment["members"])}
        if ours != [theirs]:
            found.append(f"{group} at {at_ms}\n  brokers {theirs}\n  replica {ours}")
    return found


def described(view: dict[str, Any]) -> dict[str, Any]:
    """The contract's group object as `Asker.every` would say it, topics left out: each group has one here."""
    owned = {m["member_id"]: [n for held in m["assignment"] for n in held["partitions"]] for m in view["members"]}
    return {"state": view["state"], "members": {member: sorted(held) for member, held in owned.items()}}


def numbers(members: dict[str, list[list[Any]]]) -> dict[str, list[int]]:
    """By member, the partitions that it owns, without their topic."""
    return {member: sorted(number for _, number in owned) for member, owned in members.items()}


def _events(played: Played, groups: Iterable[str]) -> tuple[dict[int, list[KafkaEvent]], int]:
    """The capture's events by shard, only of those that these groups lie in, probes in each; and how many there are."""
    reader, events = Reader(), list[KafkaEvent]()
    with open_text(played.capture) as lines:
        for row in read_rows(lines):
            read = reader.read(row)
            events += [] if isinstance(read, Rejected) else read
    records = [event for event in events if isinstance(event, RecordRead | OffsetCommitted)]
    partitions = infer_partitions({(event[5], event.partition) for event in records})
    by_shard = defaultdict[int, list[KafkaEvent]](list)
    wanted = {shard_of(group, partitions) for group in groups}
    for event in events:
        for number in wanted if isinstance(event, Tick) else {shard_of(event[5], partitions)} & wanted:
            by_shard[number].append(event)
    return by_shard, partitions
