"""Groups of the newer kinds on a real broker: at every quiet point the replica is what the broker's Admin API answers.

One cluster, several groups at once. A *moment* is an instant between two equal answers of the broker. Afterwards the
capture is replayed up to that instant, and the group must look the same: state, epochs, and each member's epoch,
assignment and target.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from kafka import KafkaAdminClient

from coordinator_model.capture_replay import History, replay_rows
from coordinator_model.decode.topic_ids import text_of
from coordinator_model.group_report import GroupReport
from coordinator_model.shard.shard import ShardSettings
from streaming.capture.file import open_text, read_rows
from streaming.run.cluster_facts import TopicNames
from tests.e2e.asker import Asker
from tests.e2e.clients import Client, Spec, java_compiles, java_program
from tests.e2e.scenarios import together
from tests.e2e.world import World

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not java_compiles(), reason="the members are written in Java, and this Java cannot compile"),
]
SESSION_MS = 7_000
PROPERTIES = {
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.migration.policy": "bidirectional",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": str(SESSION_MS),
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "1000",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": str(SESSION_MS),
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "1000",
    "group.streams.initial.rebalance.delay.ms": "0",
}
SETTINGS = ShardSettings(
    cluster="c",
    partitions=50,
    live_from_ms=0,
    consumer_session_timeouts_ms={"": SESSION_MS},
    share_session_timeouts_ms={"": SESSION_MS},
    streams_session_timeouts_ms={"": SESSION_MS},
)


@dataclass(frozen=True)
class Moment:
    """What the broker said about a group, and when."""

    name: str
    group: str
    at_ms: int
    truth: dict[str, Any]


@dataclass(frozen=True)
class MemberSpec:
    """How to start a member of `GroupMember.java`."""

    kind: str
    group: str
    name: str
    topics: str
    rebalance_timeout_ms: int = 60_000
    more: tuple[tuple[str, str], ...] = ()

    def command(self, bootstrap: str) -> list[str]:
        plain = {"bootstrap": bootstrap, "kind": self.kind, "group": self.group, "name": self.name}
        plain |= {"topics": self.topics, "rebalance_timeout_ms": str(self.rebalance_timeout_ms), **dict(self.more)}
        return java_program("GroupMember", *(f"{key}={value}" for key, value in plain.items()))


@dataclass
class Play:
    """The scenes of this test: members, questions to the broker, and the moments that are kept."""

    world: World
    members: list[Client] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)

    def member(self, kind: str, group: str, topics: str, **how: Any) -> Client:
        number = sum(1 for member in self.members if member.spec.group == group)
        spec = MemberSpec(kind, group, f"{group}-{number}", topics, **how)
        member = Client(spec, self.world.cluster.bootstrap_servers, lambda *_: None)
        self.members.append(member)
        member.wait_for("started")
        return member

    def asker(self) -> Asker:
        return Asker(self.world.cluster.bootstrap_servers)

    def moment(self, asker: Asker, name: str, kind: str, group: str, fits: Callable[[dict[str, Any]], bool]) -> None:
        """Keep the instant between two equal answers that fit."""
        deadline, truth = time.monotonic() + 60, asker.ask(kind, group)
        while time.monotonic() < deadline:
            at_ms = time.time_ns() // 1_000_000
            before, truth = truth, asker.ask(kind, group)
            if before == truth and fits(truth):
                self.moments.append(Moment(name, group, at_ms, truth))
                return
            time.sleep(0.05)
        raise TimeoutError(f"{name}: the broker says {truth}")

    def end(self) -> None:
        for member in self.members:
            member.end()


def is_in(state: str, members: int) -> Callable[[dict[str, Any]], bool]:
    return lambda truth: truth.get("state") == state and len(truth["members"]) == members


def owns(truth: dict[str, Any]) -> list[int]:
    return sorted(len(member["assignment"]) for member in truth["members"].values())


def has(state: str, *owned: int) -> Callable[[dict[str, Any]], bool]:
    """Require so many members, each with so many partitions or tasks."""
    return lambda truth: is_in(state, len(owned))(truth) and owns(truth) == sorted(owned)


def blocked(kept: int) -> Callable[[dict[str, Any]], bool]:
    """Require that one member waits for what another, which was told to give it up, still owns.

    The one that waits has gone on to the new epoch, the other has not: before that it does not wait yet.
    """

    def is_so(truth: dict[str, Any]) -> bool:
        epochs = {member["epoch"] for member in truth["members"].values()}
        return has("Reconciling", 0, kept)(truth) and len(epochs) == 2

    return is_so


def first_refused(*members):
    """Wait until one of several is fenced."""
    pool = ThreadPoolExecutor(len(members))
    waiting = {pool.submit(member.wait_for, "refused", timeout_s=120): member for member in members}
    try:
        first = next(as_completed(waiting))
        first.result()
        return waiting[first]
    finally:
        pool.shutdown(wait=False)


def reconciling(play: Play) -> None:
    """Let m1 keep what m2 is to get, then give it up; m3 comes, and m1 keeps its partitions for longer than it may."""
    topic = play.world.topic("kip", 4)
    with play.asker() as asker:
        m1 = play.member("consumer", "kip", topic, rebalance_timeout_ms=10_000)
        play.moment(asker, "one member owns all", "consumer", "kip", is_in("Stable", 1))
        told = len(m1.events)
        m1.say("hold")
        m2 = play.member("consumer", "kip", topic, rebalance_timeout_ms=10_000)
        m1.wait_for("assigned", since=told)  # less than it owns: it is UNREVOKED now
        play.moment(asker, "unrevoked and unreleased", "consumer", "kip", blocked(4))
        m1.say("release")
        play.moment(asker, "handed over", "consumer", "kip", has("Stable", 2, 2))
        m1.say("hold")
        m2.say("hold")
        m3 = play.member("consumer", "kip", topic)
        play.moment(asker, "two hold on", "consumer", "kip", is_in("Reconciling", 3))
        fenced = first_refused(m1, m2)  # whichever the assignor takes a partition from: it did not revoke in time
        fenced.end()
        kept = m2 if fenced is m1 else m1
        kept.say("release")
        play.moment(asker, "the one that held on is gone", "consumer", "kip", is_in("Stable", 2))
        for member in (kept, m3):
            member.say("close")
            member.wait_for("closed")
        play.moment(asker, "all have left", "consumer", "kip", is_in("Empty", 0))


def static_and_regex(play: Play) -> None:
    """Let a static member leave for a while (-2), and a member subscribe to a regular expression."""
    topic = play.world.topic("pattern-a", 2)
    with play.asker() as asker:
        play.member("consumer", "odd", topic)
        pod = play.member("consumer", "odd", topic, more=(("instance", "pod-1"),))
        play.moment(asker, "a static member is in", "consumer", "odd", is_in("Stable", 2))
        pod.say("away")
        pod.wait_for("closed")
        play.moment(asker, "it is away for a while", "consumer", "odd", lambda t: -2 in epochs(t))
        back = play.member("consumer", "odd", topic, more=(("instance", "pod-1"),))
        back.wait_for("assigned")
        play.moment(asker, "it is back", "consumer", "odd", lambda t: is_in("Stable", 2)(t) and -2 not in epochs(t))
        play.member("consumer", "odd", topic, more=(("regex", "pattern-.*"),))
        play.moment(asker, "a regular expression", "consumer", "odd", is_in("Stable", 3))


def epochs(truth: dict[str, Any]) -> list[int]:
    return [member["epoch"] for member in truth["members"].values()]


def sharing(play: Play) -> None:
    """Start two share consumers; one leaves, the other dies."""
    topic = play.world.topic("shared", 2)
    with play.asker() as asker:
        first, second = play.member("share", "share", topic), play.member("share", "share", topic)
        both = lambda t: is_in("Stable", 2)(t) and t["epoch"] == t["assignment_epoch"] and owns(t)[0] > 0  # noqa: E731
        play.moment(asker, "two share", "share", "share", both)
        first.say("close")
        first.wait_for("closed")
        play.moment(asker, "one has left", "share", "share", is_in("Stable", 1))
        second._process.kill()
        play.moment(asker, "the other has expired", "share", "share", is_in("Empty", 0))


def streaming(play: Play) -> None:
    """Start two members of a streams group: a task is handed over, one dies; another group lacks its source topic."""
    topic = play.world.topic("streamed", 4)
    with play.asker() as asker:
        play.member("streams", "waiting", "does-not-exist")
        play.moment(asker, "its source topic is missing", "streams", "waiting", is_in("NotReady", 1))
        first = play.member("streams", "streams", topic)
        play.moment(asker, "one runs all tasks", "streams", "streams", is_in("Stable", 1))
        told = len(first.events)
        first.say("hold")
        second = play.member("streams", "streams", topic)
        first.wait_for("assigned", since=told)
        play.moment(asker, "tasks to give up", "streams", "streams", blocked(2))
        first.say("release")
        play.moment(asker, "tasks handed over", "streams", "streams", has("Stable", 2, 2))
        second._process.kill()
        play.moment(asker, "one has expired", "streams", "streams", has("Stable", 4))
        first.say("close")
        first.wait_for("closed")
        play.moment(asker, "the last has left", "streams", "streams", is_in("Empty", 0))


def migrating(play: Play) -> None:
    """Upgrade a classic group with an open incident, downgrade it by a leave, upgrade it, downgrade it by an expiry."""
    world = play.world
    topic = world.topic("moving", 4)
    newer = Spec("confluent-848", "moving", "moving-newer", (topic,))
    with play.asker() as asker:
        a, b, c = world.group("confluent", "moving", 3, topic)
        c.kill()
        world.await_expiry(c)
        world.await_settled(a, b)
        for last in ("leaves", "dies"):
            upgrader = world.start(newer)
            upgrader.wait_for("assigned")
            play.moment(asker, f"upgraded, and the upgrader {last}", "consumer", "moving", is_in("Stable", 3))
            if last == "leaves":
                upgrader.close()
                upgrader.wait_for("closed")
            else:
                upgrader.kill()
            is_classic = lambda t: is_in("Stable", 2)(t) and t["epoch"] is None  # noqa: E731
            play.moment(asker, f"downgraded as the upgrader {last}", "consumer", "moving", is_classic)
    play.dead += [c.member_id, upgrader.member_id]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The played scenes, the rows of their capture, and a resolver of topic ids as the cluster knew them."""
    folder = tmp_path_factory.mktemp("kinds")
    scenes = (reconciling, static_and_regex, sharing, streaming, migrating)
    with World("kinds", folder, properties=PROPERTIES) as world:
        play = Play(world)
        try:
            together(*(partial(context, play) for context in scenes))
            with closing(KafkaAdminClient(bootstrap_servers=world.cluster.bootstrap_servers)) as admin:
                topics = admin.describe_topics()
        finally:
            play.end()
    names = {text_of(UUID(str(topic["topic_id"]))): topic["name"] for topic in topics}
    with open_text(world.played.capture) as lines:
        rows = list(read_rows(lines))
    return play, rows, TopicNames(lambda _: names)


def reports(history: History) -> list[GroupReport]:
    return [GroupReport(cluster="c", group=group["group"], at_ms=0, view=group) for group in history.groups]


def seen(group: dict[str, Any]) -> dict[str, Any]:
    """Return what the replica shows of a group, in the form of `GroupTruth.java`."""
    members = {}
    classic = group["type"] == "classic"
    for member in group["members"]:
        target = None if classic or group["type"] == "share" else partitions(member["target"])
        owned = partitions(member["assignment"])
        if group["type"] == "streams":  # the broker does not describe what a member has to give up
            owned = [task for task in owned if task not in partitions(member["revoking"])]
        members[member["member_id"]] = {
            "epoch": None if classic else member["generation"], "assignment": owned, "target": target
        }  # fmt: skip
    epoch, assignment_epoch = (None, None) if classic else (group["generation"], group["assignment_epoch"])
    return {"state": group["state"], "epoch": epoch, "assignment_epoch": assignment_epoch, "members": members}


def partitions(assignment: list[dict[str, Any]]) -> list[list[Any]]:
    return sorted([held["topic"], number] for held in assignment for number in held["partitions"])


def as_sorted(truth: dict[str, Any]) -> dict[str, Any]:
    members = {
        name: {key: sorted(value) if isinstance(value, list) else value for key, value in member.items()}
        for name, member in truth["members"].items()
    }
    return truth | {"members": members}


def test_at_every_moment_the_replica_is_what_the_broker_said(played):
    play, rows, resolver = played
    differences = []
    for moment in play.moments:
        history = replay_rows([row for row in rows if row.timestamp_ms <= moment.at_ms], SETTINGS)
        resolver.resolve(reports(history))
        shown = [seen(group) for group in history.groups if group["group"] == moment.group]
        if shown != [as_sorted(moment.truth)]:
            differences.append(f"{moment.group}: {moment.name}\n  broker  {as_sorted(moment.truth)}\n  replica {shown}")
    assert not differences, "\n" + "\n".join(differences)


def test_a_member_that_does_not_give_up_is_shown_to_block_the_other(played):
    play, rows, _ = played
    for name, kind in (("unrevoked and unreleased", "kip"), ("tasks to give up", "streams")):
        [moment] = [moment for moment in play.moments if moment.name == name]
        history = replay_rows([row for row in rows if row.timestamp_ms <= moment.at_ms], SETTINGS)
        [group] = [group for group in history.groups if group["group"] == kind]
        [holder] = [member for member in group["members"] if member["state"] == "unrevoked"]
        [waiter] = [member for member in group["members"] if member["waits_for"]]
        [wait] = waiter["waits_for"]
        assert (wait["member_id"], len(wait["partitions"]), waiter["state"]) == (holder["member_id"], 2, "unreleased")


def test_changes_of_kind_end_no_incident_and_accuse_only_the_dead(played):
    play, rows, _ = played
    told = [t for t in replay_rows(rows, SETTINGS).transitions if t.incident.group == "moving"]
    # five rebalances and two expiries: whether within the five minutes of a storm depends on the machine
    assert {t.incident.rule for t in told} <= {"session-expired", "session-at-risk", "rebalance-storm"}
    opened = [t.incident.member_id for t in told if t.kind == "opened" and t.incident.rule == "session-expired"]
    assert sorted(opened) == sorted(play.dead)
    assert "group-deleted" not in {t.incident.reason for t in told}


def test_expiries_and_revocation_timeouts_are_those_of_the_brokers_log(played):
    play, rows, _ = played
    rules = ("session-expired", "rebalance-timeout")
    told = {
        (t.incident.rule, t.incident.group, t.incident.member_id): t.incident.deadline_ms
        for t in replay_rows(rows, SETTINGS).transitions
        if t.incident.rule in rules and t.kind == "opened"
    }
    truth = {(e.kind, e.group, e.member_id): e.at_ms for e in play.world.played.truth if e.kind in rules}
    assert told.keys() == truth.keys()
    assert {key: told[key] - at_ms for key, at_ms in truth.items() if abs(told[key] - at_ms) > 1_000} == {}


def test_a_regular_expression_is_shown_with_the_topics_it_was_resolved_to(played):
    play, rows, _ = played
    [moment] = [moment for moment in play.moments if moment.name == "a regular expression"]
    history = replay_rows([row for row in rows if row.timestamp_ms <= moment.at_ms], SETTINGS)
    [group] = [group for group in history.groups if group["group"] == "odd"]
    topics = {member["topic_regex"]: member["topics"] for member in group["members"]}
    assert topics == {None: ["pattern-a"], "pattern-.*": ["pattern-a"]}
