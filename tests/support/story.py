"""A `Story` is one group's life: records as the coordinator writes them, request-log lines as the broker does.

Times are in milliseconds from its beginning. `play` runs it through the real parser, the real
shard and the real incidents, and returns what people would be told::

    story = stable("m1", "m2")              # generation 1, both synced by 150 ms
    story.beats("m1", 1_000, 20_000)        # m1 heartbeats once a second
    told = story.play(until=20_000)         # a probe's line every 500 ms is added
    assert told.opened("session-expired") == ["m2"]
"""

import base64
import json
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from coordinator_model.capture_replay import History, replay_rows
from coordinator_model.decode.parse import OFFSETS, REPORTS, TELEMETRY, SourceRow, parse_row
from coordinator_model.decode.source_row import CLUSTER
from coordinator_model.incidents import Kind, to_contract
from coordinator_model.shard.shard import ShardSettings
from coordinator_model.thresholds import Thresholds
from streaming.client_metrics.otlp import read_metrics
from tests.support import records, request_log
from tests.support.pushes import metrics_data
from tests.support.records import key
from tests.support.request_log import line, probe_line

T0 = 1_700_000_000_000
"""The beginning of every story, epoch ms; the times of a story are relative to it."""
SESSION_MS = 6_000
POLL_MS = 60_000
TOPIC_ID = UUID(bytes=bytes(range(1, 17)))
TOPIC_ID_TEXT = "AQIDBAUGBwgJCgsMDQ4PEA"
SUBSCRIPTION = records.subscription(["t"])

# ---------------------------------------------------------------------------------------------- rows, members


def telemetry(value: str | bytes, *, at_ms: int = T0, broker: str | None = "broker-1", offset: int = 0) -> SourceRow:
    """A row of the telemetry topic."""
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return SourceRow(TELEMETRY, "group-telemetry", 0, offset, at_ms, broker.encode() if broker else None, raw)


def events_of(value: str | bytes, **where: Any) -> Any:
    """Return what the parser makes of one line."""
    return parse_row(telemetry(value, **where))


@dataclass(frozen=True)
class Who:
    """A member as its record and its lines show it."""

    member_id: str
    instance_id: str | None = None
    client_id: str = "client"
    host: str = "10.0.0.7"
    port: int = 5_000
    partitions: tuple[int, ...] = ()
    owned: tuple[int, ...] = ()
    """The partitions of topic t that it says it owns when it joins."""
    session_ms: int | None = None
    """Its own session timeout; None: that of the story."""
    poll_ms: int | None = None
    """Its own rebalance timeout; None: that of the story."""


def group_metadata(
    generation: int,
    members: list[Who],
    leader: str | None,
    *,
    session_ms: int = SESSION_MS,
    poll_ms: int = POLL_MS,
) -> bytes:
    """A type-2 value, version 3."""
    listed = [
        records.ListedMember(
            who.member_id,
            who.instance_id,
            who.client_id,
            "/" + who.host,
            who.poll_ms or poll_ms,
            who.session_ms or session_ms,
            records.subscription(["t"], {"t": who.owned}) if who.owned else SUBSCRIPTION,
            records.assignment({"t": who.partitions}),
        )
        for who in members
    ]
    return records.group_metadata("consumer", generation, "range" if members else None, leader, T0, listed)


# ---------------------------------------------------------------------------------------------- a group's life


@dataclass
class Told:
    """The result of a story; instants are relative to `T0`."""

    history: History

    @property
    def transitions(self) -> list[dict[str, Any]]:
        """The contract's incident objects, in time order."""
        return [to_contract(t) for t in self.history.transitions]

    def of(self, rule: str, transition: str = "opened") -> list[dict[str, Any]]:
        """The transitions of one rule."""
        return [t for t in self.transitions if t["rule"] == rule and t["transition"] == transition]

    def opened(self, rule: str) -> list[str]:
        """Return the subjects of a rule's openings, in order."""
        return [t["subject"] for t in self.of(rule)]

    def facts(self, rule: str, *names: str) -> list[tuple[Any, ...]]:
        """Chosen fields of a rule's openings; instants relative."""
        return [tuple(t[n] - T0 if n.endswith("_ms") else t[n] for n in names) for t in self.of(rule)]

    def closed(self, rule: str) -> list[tuple[str, int]]:
        """(reason, when) of a rule's closings."""
        return [
            (t.incident.reason or "", t.at_ms - T0)
            for t in self.history.transitions
            if t.kind is Kind.CLOSED and t.incident.rule == rule
        ]

    @property
    def accusations(self) -> list[tuple[str, str]]:
        """(rule, subject) of every report that a member is gone."""
        rules = ("session-expired", "rebalance-timeout", "poll-exceeded")
        return [
            (t["rule"], t["subject"]) for t in self.transitions if t["transition"] == "opened" and t["rule"] in rules
        ]

    @property
    def group(self) -> dict[str, Any]:
        """The one group as it is at the end."""
        [group] = self.history.groups
        return group

    @property
    def members(self) -> dict[str, dict[str, Any]]:
        """Its members by id."""
        return {m["member_id"]: m for m in self.group["members"]}


@dataclass
class Story:
    """One group's life on one or a few brokers; each method adds what Kafka would have written at that instant."""

    group: str = "orders"
    session_ms: int = SESSION_MS
    poll_ms: int = POLL_MS
    """The rebalance timeout of all members."""
    broker: str = "broker-1"
    rows: list[tuple[int, int, SourceRow]] = field(default_factory=list)
    who: dict[str, Who] = field(default_factory=dict)
    silences: list[tuple[str, int, int]] = field(default_factory=list)
    restarts: list[tuple[str, int]] = field(default_factory=list)
    losses: list[int] = field(default_factory=list)
    leaders: dict[int, str] = field(default_factory=dict)
    """The leader of each generation that an answer listed: followers are told its id, too."""
    jumps: list[int] = field(default_factory=list)
    """Instants of probes; before each, other probes were answered whose lines never came."""
    brokers: dict[str, int] = field(default_factory=lambda: {"broker-1": 0})
    """Brokers that are probed, and from when on."""

    def know(self, *members: Who | str) -> list[Who]:
        """Remember how members look; a bare name is a plain dynamic member on a connection of its own."""
        known = []
        for member in members:
            who = self.who.get(member) if isinstance(member, str) else member
            if who is None:
                who = Who(str(member), client_id=f"client-{member}", port=5_000 + len(self.who))
            self.who[who.member_id] = who
            known.append(who)
        return known

    # -- lines

    def tell(self, at_ms: int, value: str, broker: str | None = None) -> "Story":
        """Add a line of a broker's log."""
        broker = broker or self.broker
        row = SourceRow(TELEMETRY, f"lines-of-{broker}", 0, -1, T0 + at_ms, broker.encode(), value.encode())
        self.rows.append((at_ms, 1, row))
        return self

    def _of(self, member: str, how: dict[str, Any]) -> dict[str, Any]:
        [who] = self.know(member)
        return {"client": who.client_id, "port": who.port, **how}

    def beat(self, at_ms: int, member: str, generation: int = 1, error: int = 0, **how: Any) -> "Story":
        """Answer a classic heartbeat; `parked_ms`: how long it waited behind a stalled write."""
        broker, parked_ms = how.pop("broker", None), how.pop("parked_ms", 0)
        told = request_log.heartbeat(
            self.group, member, generation, instance=self.know(member)[0].instance_id, error=error
        )
        how = {"total_ms": parked_ms, "remote_ms": parked_ms, **self._of(member, how)}
        return self.tell(at_ms, line("HEARTBEAT", *told, **how), broker)

    def refused_commit(
        self, at_ms: int, member: str, *partitions: int, error: int = 25, generation: int = 1, **how: Any
    ) -> "Story":
        """Answer a commit of partitions of topic t; `named`: the member id in the request, by default its own."""
        broker, named, api = how.pop("broker", None), how.pop("named", member), how.pop("api", "OFFSET_COMMIT")
        which = [{"partitionIndex": number, "committedOffset": 7} for number in partitions]
        epoch = "generationIdOrMemberEpoch" if api == "OFFSET_COMMIT" else "generationId"
        request = {
            "groupId": self.group,
            epoch: generation,
            "memberId": named,
            "groupInstanceId": self.know(member)[0].instance_id,
            "topics": [{"name": "t", "partitions": which}],
        }
        answered = [{"partitionIndex": number, "errorCode": error} for number in partitions]
        response = {"throttleTimeMs": 0, "topics": [{"name": "t", "partitions": answered}]}
        return self.tell(at_ms, line(api, request, response, **self._of(member, how)), broker)

    def beats(self, member: str, start_ms: int, end_ms: int, generation: int = 1, **how: Any) -> "Story":
        """Answer heartbeats once a second, from `start_ms` to `end_ms`, both included."""
        for at_ms in range(start_ms, end_ms + 1, how.pop("every_ms", 1_000)):
            self.beat(at_ms, member, generation, **how)
        return self

    def join(
        self, at_ms: int, member: str | Who, generation: int, listed: Any = (), error: int = 0, **how: Any
    ) -> "Story":
        """Answer a JoinGroup; `listed`: the members in the leader's answer."""
        [who] = self.know(member)
        broker, parked_ms = how.pop("broker", None), how.pop("parked_ms", 10)
        asked, leader = how.pop("asked", None), how.pop("leader", None)
        members = [(w.member_id, w.instance_id) for w in self.know(*listed)]
        if members:
            self.leaders[generation] = members[0][0]
        told = request_log.join(
            self.group,
            who.member_id,
            generation,
            session_ms=who.session_ms or self.session_ms,
            rebalance_ms=who.poll_ms or self.poll_ms,
            metadata=SUBSCRIPTION,
            asked=asked,
            leader=leader or ("" if error else self.leaders.get(generation, "")),
            listed=members,
            instance=who.instance_id,
            error=error,
        )
        how = {"total_ms": parked_ms, "remote_ms": parked_ms, **self._of(who.member_id, how)}
        return self.tell(at_ms, line("JOIN_GROUP", *told, **how), broker)

    def sync(self, at_ms: int, member: str, generation: int, *, leader: bool = False, **how: Any) -> "Story":
        """Answer a SyncGroup; the leader's carries the assignments."""
        [who] = self.know(member)
        broker, parked_ms = how.pop("broker", None), how.pop("parked_ms", 5)
        assigned = records.assignment({"t": who.partitions})
        told = request_log.sync(
            self.group,
            who.member_id,
            generation,
            assigned=assigned,
            sent={who.member_id: assigned} if leader else None,
            instance=who.instance_id,
            error=how.pop("error", 0),
        )
        how = {"total_ms": parked_ms, "remote_ms": parked_ms, **self._of(member, how)}
        return self.tell(at_ms, line("SYNC_GROUP", *told, **how), broker)

    def leave(self, at_ms: int, *members: str, reason: str | None = None, **how: Any) -> "Story":
        """Answer a LeaveGroup: version 5, a batch; `errors` by member, `parked_ms` behind a stalled write."""
        parked_ms, errors, error = how.pop("parked_ms", 0), how.pop("errors", {}), how.pop("error", 0)
        broker = how.pop("broker", None)
        known = [(m, self.know(m)[0].instance_id) for m in members]
        told = request_log.leave(self.group, known, reason=reason, errors=errors, error=error)
        how = {"total_ms": parked_ms, "remote_ms": parked_ms, **self._of(members[0], how)}
        return self.tell(at_ms, line("LEAVE_GROUP", *told, **how), broker)

    def hello(self, at_ms: int, member: str, asked: int, epoch: int, error: int = 0, **how: Any) -> "Story":
        """Answer a CONSUMER_GROUP_HEARTBEAT (KIP-848): `asked` 0 joins, -1 leaves, -2 leaves for a while."""
        [who] = self.know(member)
        broker, parked_ms = how.pop("broker", None), how.pop("parked_ms", 0)
        rebalance_ms = self.poll_ms if asked == 0 else -1
        told = request_log.consumer_heartbeat(
            self.group,
            who.member_id,
            asked,
            epoch,
            rebalance_ms=rebalance_ms,
            instance=who.instance_id,
            error=error,
        )
        how = {"total_ms": parked_ms, "remote_ms": parked_ms, **self._of(member, how)}
        return self.tell(at_ms, line("CONSUMER_GROUP_HEARTBEAT", *told, **how), broker)

    def hellos(self, member: str, start_ms: int, end_ms: int, epoch: int, **how: Any) -> "Story":
        """Answer plain KIP-848 heartbeats once a second."""
        for at_ms in range(start_ms, end_ms + 1, 1_000):
            self.hello(at_ms, member, epoch, epoch, **how)
        return self

    def exports(self, at_ms: int, member: str, poll_age_s: float | None, **how: Any) -> "Story":
        """Let a collector's record report a client's metrics."""
        data = metrics_data(self.group, how.pop("member_id", member), poll_age_s, **how)
        row = SourceRow(REPORTS, "otlp_metrics", 0, -1, T0 + at_ms, None, data)
        self.rows.append((at_ms, 1, row))
        return self

    def reports(self, at_ms: int, member: str, poll_age_ms: int, limit_ms: int = POLL_MS) -> "Story":
        """Let a consumer's own reporter report its poll age."""
        [who] = self.know(member)
        report = {
            "group_monitor_reporter": 1,
            "group": self.group,
            "member_id": member,
            "instance_id": who.instance_id,
            "client_id": who.client_id,
            "poll_age_ms": poll_age_ms,
            "max_poll_interval_ms": limit_ms,
        }
        row = SourceRow(
            REPORTS,
            "group-client-telemetry",
            0,
            -1,
            T0 + at_ms,
            None,
            json.dumps(report, separators=(",", ":")).encode(),
        )
        self.rows.append((at_ms, 1, row))
        return self

    def pushes(self, at_ms: int, member: str, poll_age_s: float | None, **how: Any) -> "Story":
        """Let a client push its metrics to a broker, which may not be the coordinator."""
        [who] = self.know(member)
        broker, error = how.pop("broker", None), how.pop("error", 0)
        data = how.pop("data", None) or metrics_data(
            self.group, how.pop("member_id", who.member_id), poll_age_s, idle=how.pop("idle", None)
        )
        request = {
            "clientInstanceId": how.pop("instance", "YqZmXnBkTvWJRVC_XQ1WtA"),
            "subscriptionId": 7,
            "terminating": False,
            "compressionType": 0,
            "metrics": base64.b64encode(data).decode(),
        }
        answer = {"throttleTimeMs": 0, "errorCode": error}
        return self.tell(at_ms, line("PUSH_TELEMETRY", request, answer, **self._of(member, how)), broker)

    def asks(self, at_ms: int, member: str, **how: Any) -> "Story":
        """Let a client ask any broker who coordinates its group."""
        self.know(member)
        request = {"key": how.pop("group", self.group), "keyType": 0}
        answer = {"throttleTimeMs": 0, "errorCode": 0, "nodeId": 1, "host": "h", "port": 9092}
        broker = how.pop("broker", None)
        return self.tell(
            at_ms, line("FIND_COORDINATOR", request, answer, **{"version": 2, **self._of(member, how)}), broker
        )

    # -- records

    def write(self, at_ms: int, key_: bytes, value: bytes | None) -> "Story":
        """Write any record of the group's partition."""
        self.rows.append((at_ms, 0, SourceRow(OFFSETS, "__consumer_offsets", 0, -1, T0 + at_ms, key_, value)))
        return self

    def record(self, at_ms: int, generation: int, *members: str | Who, leader: str | None = None) -> "Story":
        """Write the classic group as it is: stable with these members, or empty."""
        known = self.know(*members)
        leader = leader or (known[0].member_id if known else None)
        value = group_metadata(generation, known, leader, session_ms=self.session_ms, poll_ms=self.poll_ms)
        return self.write(at_ms, key(2, self.group), value)

    def deleted(self, at_ms: int) -> "Story":
        """Write the classic group's tombstone."""
        return self.write(at_ms, key(2, self.group), None)

    def commit(self, at_ms: int, topic: str, partition: int, offset: int = 42, topic_id: UUID | None = None) -> "Story":
        """Write an offset commit, in the format of Kafka 4.1 if it names the topic's id."""
        value = records.commit_value(offset, T0 + at_ms, topic_id=topic_id)
        return self.write(at_ms, records.commit_key(self.group, topic, partition), value)

    def uncommit(self, at_ms: int, topic: str, partition: int) -> "Story":
        """Write a commit's tombstone."""
        return self.write(at_ms, records.commit_key(self.group, topic, partition), None)

    def epoch(self, at_ms: int, epoch: int | None) -> "Story":
        """Write record 3, the KIP-848 group epoch; None is its tombstone."""
        return self.write(at_ms, key(3, self.group), None if epoch is None else records.group_epoch(epoch))

    def target(self, at_ms: int, epoch: int | None) -> "Story":
        """Write record 6, the epoch of the target assignment."""
        return self.write(at_ms, key(6, self.group), None if epoch is None else records.target_epoch(epoch))

    def member(self, at_ms: int, member: str | Who, *, classic_session_ms: int | None = None) -> "Story":
        """Write record 5."""
        [who] = self.know(member)
        classic = b"\0" if classic_session_ms is None else records.classic_part(classic_session_ms)
        value = records.member_metadata(
            who.client_id, "/" + who.host, ["t"], self.poll_ms, who.instance_id, classic=classic
        )
        return self.write(at_ms, key(5, self.group, who.member_id), value)

    def current(self, at_ms: int, member: str, epoch: int, state: int = 0, partitions: tuple[int, ...] = ()) -> "Story":
        """Write record 8: state 0 stable, 1 unrevoked, 2 unreleased partitions."""
        value = records.current(epoch, epoch - 1, state, {TOPIC_ID: partitions}, {})
        return self.write(at_ms, key(8, self.group, member), value)

    def gone(self, at_ms: int, member: str) -> "Story":
        """Write the tombstones 8, 7, 5 of a KIP-848 member."""
        for type_ in (8, 7, 5):
            self.write(at_ms, key(type_, self.group, member), None)
        return self

    # -- the brokers

    def leads(self, at_ms: int, leader: str | None, *more: int, **facts: Any) -> "Story":
        """Let metadata name the leader of the one partition at `at_ms` and at `more`: "broker-<node>", None for nobody.

        All brokers that are probed have their names as keys.
        """
        brokers = {name.removeprefix("broker-"): {"key": name} for name in self.brokers}
        node = None if leader is None else int(leader.removeprefix("broker-"))
        for instant_ms in (at_ms, *more):
            row = {"timestamp_ms": T0 + instant_ms, "leaders": [node], "brokers": brokers, **facts}
            value = json.dumps({"source": "cluster", **row}).encode()
            self.rows.append((instant_ms, 2, SourceRow(CLUSTER, "", 0, -1, T0 + instant_ms, None, value)))
        return self

    def silent(self, start_ms: int, end_ms: int, broker: str = "broker-1", *, restart: bool = False) -> "Story":
        """Let a broker answer no probe for a while; the next one has the next number, because one is asked at a time.

        The broker is paused and its connections live on, unless it is restarted.
        """
        self.silences.append((broker, start_ms, end_ms))
        if restart:
            self.restarts.append((broker, end_ms))
        return self

    def lose(self, at_ms: int) -> "Story":
        """Let offsets of broker-1's telemetry be missing just before its first line from `at_ms` on."""
        self.losses.append(at_ms)
        return self

    def _probes(self, until_ms: int) -> list[tuple[int, int, SourceRow]]:
        made = Story()
        for broker, from_ms in self.brokers.items():
            number = 0
            for at_ms in range(from_ms, until_ms + 1, 500):
                if not any(b == broker and start < at_ms < end for b, start, end in self.silences):
                    number += 7 if at_ms in self.jumps else 1
                    port = 5_000 + sum(1 for b, ended_ms in self.restarts if b == broker and ended_ms <= at_ms)
                    made.tell(at_ms, probe_line(number, port=port), broker)
        return made.rows

    def source_rows(self, until: int) -> list[SourceRow]:
        """Return all rows up to an instant, probes included; offsets of each partition rise with its instants."""
        told = [entry for entry in self.rows if entry[0] <= until] + self._probes(until)
        offsets: dict[str, int] = {}
        losses = sorted(self.losses)
        numbered = []
        for at_ms, _, row in sorted(told, key=lambda entry: entry[:2]):
            offsets[row.topic] = offsets.get(row.topic, -1) + 1
            if losses and at_ms >= losses[0] and row.topic == "lines-of-broker-1":
                offsets[row.topic] += 5
                losses.pop(0)
            numbered.append(row._replace(offset=offsets[row.topic]))
        return numbered

    def play(
        self, until: int, thresholds: Thresholds | None = None, *, may_fail: bool = False, **settings: Any
    ) -> Told:
        """Run the story through the model; it must set no group aside unless `may_fail`."""
        config = ShardSettings(
            cluster="c", partitions=1, live_from_ms=0, thresholds=thresholds or Thresholds(), **settings
        )
        history = replay_rows(self.source_rows(until), config, read_metrics=read_metrics)
        assert may_fail or not any(reason.startswith("group:") for reason in history.undecodable), history.undecodable
        return Told(history)


def silent_until_moved() -> Story:
    """Broker-1's lines stop at 10 s and never come again. From 40 s on, broker-2 leads and hears the members."""
    story = stable("m1", "m2").beats("m1", 1_000, 10_000).beats("m2", 1_000, 10_000).silent(10_000, 999_000)
    story.brokers["broker-2"] = 0
    story.leads(500, "broker-1", *range(5_000, 40_000, 5_000)).leads(40_000, "broker-2", *range(45_000, 80_000, 5_000))
    for member in ("m1", "m2"):
        story.beats(member, 41_000, 79_000, broker="broker-2")
    return story


def stable(*members: str | Who, session_ms: int = SESSION_MS, partitions: int = 0, poll_ms: int = POLL_MS) -> Story:
    """Begin a story with a classic group that is stable in generation 1: joined at 100 ms, synced by 150 ms.

    The first member leads; each owns `partitions` partitions of topic t.
    """
    story = Story(session_ms=session_ms, poll_ms=poll_ms)
    everybody = []
    for n, who in enumerate(story.know(*members)):
        mine = tuple(range(n * partitions, (n + 1) * partitions)) or who.partitions
        everybody.append(replace(who, partitions=mine))
    story.know(*everybody)
    return rebalance(story, 100, 1, *everybody)


def rebalance(story: Story, at_ms: int, generation: int, *members: str | Who) -> Story:
    """Complete a join phase at an instant: joins answered, synced 40 ms later, the record in between."""
    everybody = story.know(*members)
    for n, who in enumerate(everybody):
        story.join(at_ms, who, generation, listed=everybody if n == 0 else ())
    story.record(at_ms + 40, generation, *everybody)
    for n, who in enumerate(everybody):
        story.sync(at_ms + 50, who.member_id, generation, leader=n == 0, parked_ms=20)
    return story


def consumers(*members: str | Who, epoch: int = 2, poll_ms: int = POLL_MS) -> Story:
    """Begin a story with a KIP-848 group that is stable at an epoch by 110 ms."""
    story = Story(poll_ms=poll_ms)
    for who in story.know(*members):
        story.hello(100, who.member_id, 0, epoch)
        story.member(105, who)
    story.epoch(105, epoch).target(106, epoch)
    for who in story.know(*members):
        story.current(110, who.member_id, epoch)
    return story
