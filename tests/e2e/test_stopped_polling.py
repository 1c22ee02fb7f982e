"""A member that stops polling for good is reported; closed, killed, redeployed and late ones are not.

It is known by what its own client reports. A real broker with the plugin and the topic of reports is recorded as
`capture` does; the capture is replayed through the model. All clients live at the same time, each alone in its group.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import NamedTuple

import pytest

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.parse import RowParser
from coordinator_model.decode.source_row import REPORTS, TELEMETRY
from coordinator_model.group_report import read_outputs, reports_in
from coordinator_model.incidents import fold, to_contract
from coordinator_model.shard.shard import ShardSettings
from coordinator_model.thresholds import Thresholds
from streaming.capture.file import open_text, read_rows
from streaming.capture.recorder import Recording
from streaming.client_metrics.otlp import read_metrics
from streaming.config.kafka import Kafka
from streaming.embedded import EmbeddedCluster
from streaming.embedded.ports import free_ports
from streaming.log4j2 import Snippet, as_yaml
from streaming.reporter.message import TOPIC
from streaming.telemetry_topics import REPORT_CONFIGS
from tests.e2e.clients import Client, Spec, java_compiles
from tests.oracle.monitor import Monitor
from tests.oracle.perturb import Arrival, arrivals
from tests.support.parts import skip_without_broker
from tests.support.waiting import await_true

pytestmark = pytest.mark.e2e
LIMIT_MS = 30_000  # a fifth of it is longer than the interval of pushes, which is 5 s
SESSION_MS = 7_000  # above Kafka's default minimum, which is reported as such
STATIC_SESSION_MS = 20_000  # so that a static member is stuck for a while before its session ends
WAIT_S = 120.0
LATE_MS = 30_000
BATCH_MS = 1_000
PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "1000",
}
VIOLATIONS = {"session-expired", "rebalance-timeout", "poll-exceeded", "static-member-stuck"}


class Kind(NamedTuple):
    """A client, and what is reported if it hangs: the first rule, and the evidence."""

    software: str
    settings: Mapping[str, object] = MappingProxyType({})
    rule: str = "poll-exceeded"
    evidence: str = "observed"
    tells_ages: bool = True
    pushes: bool = True


KINDS = {
    "java": Kind("java"),
    "java-848": Kind("java-848"),
    "librdkafka": Kind("confluent", evidence="inferred", tells_ages=False),
    "librdkafka-848": Kind("confluent-848", {"callbacks": False}, rule="session-expired", tells_ages=False),
    "reporter": Kind("kafka-python", {"reporter": True}, pushes=False),
}
"""A KIP-848 librdkafka client cannot leave without its application, so its session ends, and that is the reason."""
MORE_KINDS = {
    "librdkafka-848-callbacks": Kind("confluent-848", rule="session-expired", tells_ages=False),
    "reporter-librdkafka": Kind("confluent", {"reporter": True}),
    "reporter-librdkafka-848": Kind("confluent-848", {"reporter": True, "callbacks": False}),
    "reporter-librdkafka-848-callbacks": Kind("confluent-848", {"reporter": True}),
}
"""Of these kinds only one that hangs and one that is closed are played."""
UNTOLD_KINDS = {"librdkafka-silent": Kind("confluent", {"pushes": False}, tells_ages=False, pushes=False)}
"""Clients that report nothing about their polls; of these, only hanging, closed and unsubscribing ones are played."""
ALL_KINDS = {**KINDS, **MORE_KINDS, **UNTOLD_KINDS}
REVOKED = "librdkafka-848-callbacks"
"""A KIP-848 member that has to give up a partition while it hangs is removed for that, before its session ends."""
STATIC = {"java": "inferred", "librdkafka": "inferred", "reporter": "observed"}
"""Kinds of static members, and the evidence that they are stuck."""
FATES = ("hangs", "late", "closed", "killed", "unsubscribed", "redeployed")
GROUPS = (
    *((fate, kind) for fate in FATES for kind in KINDS),
    *((fate, kind) for fate in ("hangs", "closed") for kind in MORE_KINDS),
    *((fate, kind) for fate in ("hangs", "closed", "unsubscribed") for kind in UNTOLD_KINDS),
    *(("static", kind) for kind in STATIC),
    ("revoked", REVOKED),
)
GUILTLESS = [group for group in GROUPS if group[0] not in ("hangs", "static", "revoked")]


def name(fate, kind):
    return f"{fate}-{kind}"


class Scene:
    """All clients by (fate, kind), and when each stopped polling."""

    def __init__(self, stack, cluster):
        self._stack, self._servers = stack, cluster.bootstrap_servers
        self.clients, self.acted_ms = {}, {}
        for fate, kind in GROUPS:
            static = {"instance_id": "i1", "session_timeout_ms": STATIC_SESSION_MS} if fate == "static" else {}
            group, (software, settings, *_) = name(fate, kind), ALL_KINDS[kind]
            limits = {"max_poll_interval_ms": LIMIT_MS, "session_timeout_ms": SESSION_MS, **settings, **static}
            spec = Spec(software, group, f"client-of-{group}", ("orders",), **limits)
            self._keep((fate, kind), Client(spec, self._servers, lambda *_: None))

    def _keep(self, key, client):
        self.clients[key] = client
        self._stack.callback(client.end)

    def act(self):
        """Let each client meet its fate."""
        for (fate, kind), client in list(self.clients.items()):
            self.acted_ms[fate, kind] = round(time.time() * 1_000)
            match fate:
                case "hangs" | "static" | "revoked":
                    client.stall(3_600)
                case "late":
                    client.stall(LIMIT_MS * 0.9 / 1_000)
                case "closed":
                    client.close()
                case "killed":
                    client.kill()
                case "unsubscribed":
                    client.unsubscribe()
                case "redeployed":
                    client.close()
        self._keep("newcomer", self.clients["revoked", REVOKED].again(name="newcomer"))
        time.sleep(2)  # librdkafka leaves when it polls
        for kind in (*KINDS, *UNTOLD_KINDS):
            self.clients["unsubscribed", kind].stall(3_600)
        for kind in KINDS:
            self.clients["redeployed", kind].wait_for("closed")
            self._keep(("redeployed again", kind), self.clients["redeployed", kind].again())

    def await_end(self):
        """Wait until the limit of clients that hang has passed, two pushes have followed, and all sessions have ended.

        Also wait until it is reported that a client that reports nothing has left, and lives.
        """
        for kind in KINDS:
            self.clients["late", kind].wait_for("polling")
        last_ms = max(self.acted_ms[key] for key in self.acted_ms if key[0] in ("hangs", "static", "revoked"))
        ends_s = (last_ms + LIMIT_MS) / 1_000 + 24
        time.sleep(max(0.0, ends_s - time.time()))


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The played scene, and the rows of its capture."""
    skip_without_broker()
    if not java_compiles():
        pytest.skip("no Java compiler")
    capture = tmp_path_factory.mktemp("capture") / "polls.jsonl"
    with ExitStack() as stack:
        cluster = stack.enter_context(cluster_with_lookups())
        cluster.create_topic(TOPIC, partitions=1, configs=dict(REPORT_CONFIGS))
        cluster.create_topic("orders", partitions=2)
        kafka = Kafka(bootstrap_servers=cluster.bootstrap_servers)
        recording = Recording(kafka, capture, from_beginning=True, probing=True)
        stack.callback(recording.finish)
        recording.start()
        scene = Scene(stack, cluster)
        for client in scene.clients.values():
            client.wait_for("assigned", timeout_s=WAIT_S)
        wanted = {f'"client-of-{name(*key)}'.encode() for key in GROUPS if ALL_KINDS[key[1]].pushes}
        await_true(lambda: _pushing(capture, wanted), "no push of each", pause_s=0.2)
        scene.act()
        scene.await_end()
        recording.finish()
    with open_text(capture) as lines:
        return scene, list(read_rows(lines))


def cluster_with_lookups():
    """Start a broker that also ships requests for the coordinator of a group."""
    (port,) = free_ports(1)
    servers = f"127.0.0.1:{port}"
    file = as_yaml(Snippet(servers, key="broker-1", alone=True, coordinator_log=False, coordinator_lookups=True))
    return EmbeddedCluster(port=port, properties=PROPERTIES, log4j2={"log4j2.yaml": file})


def _pushing(capture, wanted):
    with capture.open("rb") as rows:
        pushes = [row.replace(b"\\", b"") for row in rows if b"PUSH_TELEMETRY" in row]
    return all(any(client in push for push in pushes) for client in wanted)


@pytest.fixture(scope="module")
def told(played):
    """Return what `replay` reports, by group."""
    settings = ShardSettings(cluster="c", partitions=0, live_from_ms=0)
    history = replay_rows(played[1], settings, read_metrics=read_metrics)
    return by_group([to_contract(transition) for transition in history.transitions])


@pytest.fixture(scope="module")
def in_the_end(played):
    """Return what is known in the end about each leave without a reason, by group."""
    settings = ShardSettings(cluster="c", partitions=1, live_from_ms=0)
    monitor = Monitor(settings, reader=RowParser(read_metrics=read_metrics))
    monitor.read((row for row in played[1] if row.source != "cluster"), final=True)
    steps, _ = fold({}, reports_in(read_outputs(monitor.outputs)), lambda _: settings.thresholds.resolve_after_ms)
    return {step.incident.group: step.incident for step in steps if step.incident.rule == "left-without-reason"}


def late(sources, by_ms):
    """Let the rows of these sources be read this long after they were written."""
    return lambda rows, _: [Arrival(row.timestamp_ms + by_ms * (row.source in sources), row) for row in rows]


SOURCES = [pytest.param((TELEMETRY,), id="lines"), pytest.param((TELEMETRY, REPORTS), id="lines and reports")]


@pytest.fixture(scope="module", params=SOURCES)
def told_late(request, played):
    """What a monitor reports that reads telemetry 30 s late."""
    return read_late(played[1], request.param, LATE_MS)


@pytest.fixture(scope="module", params=SOURCES)
def told_before_any_line(request, played):
    """What a monitor reports that reads the first line 30 s after the last client has met its fate."""
    scene, rows = played
    first_ms = min(row.timestamp_ms for row in rows if row.source == TELEMETRY)
    return read_late(rows, request.param, max(scene.acted_ms.values()) - first_ms + LATE_MS)


def read_late(rows, sources, late_ms):
    """Return what a monitor reports, by group, that reads the rows of these sources this late."""
    rows = sorted((row for row in rows if row.source != "cluster"), key=lambda row: row.timestamp_ms)
    live_from_ms = min(row.timestamp_ms for row in rows if row.source == TELEMETRY)
    thresholds = Thresholds(consumer_session_timeout_ms=SESSION_MS)
    settings = ShardSettings(cluster="c", partitions=1, live_from_ms=live_from_ms, thresholds=thresholds)
    monitor = Monitor(settings, reader=RowParser(read_metrics=read_metrics))
    batch, until_ms = [], 0
    for at_ms, row in arrivals(rows, late(sources, late_ms), "late"):
        if at_ms > until_ms:
            monitor.read(batch, wall_ms=until_ms)
            batch, until_ms = [], at_ms + BATCH_MS
        batch.append(row)
    monitor.read(batch, wall_ms=until_ms)
    return by_group(monitor.incidents())


def by_group(transitions):
    opened = [line for line in transitions if line["transition"] == "opened"]
    return {key: [line for line in opened if line["group"] == name(*key)] for key in GROUPS}


def of_rule(incidents, rule):
    return [incident for incident in incidents if incident["rule"] == rule]


@pytest.mark.parametrize("kind", [*KINDS, *MORE_KINDS])
def test_who_hangs_for_good_is_told_within_a_minute_of_its_limit(played, told, kind):
    scene, expected = played[0], ALL_KINDS[kind]
    accused = [line for line in told["hangs", kind] if line["rule"] in VIOLATIONS]
    incident = accused[0]
    assert incident["rule"] == expected.rule
    assert incident["member_id"] == scene.clients["hangs", kind].member_id
    assert (incident["cause"], incident["evidence"]) == ("poll-interval", expected.evidence)
    limit_ms = scene.acted_ms["hangs", kind] + LIMIT_MS
    assert incident["at_ms"] - limit_ms < 60_000
    if expected.rule == "poll-exceeded":
        assert abs(incident["deadline_ms"] - limit_ms) < 3_000
    assert {line["cause"] for line in accused} == {"poll-interval"}
    dropped = ["session-expired"] if expected.software == "confluent-848" else []
    assert [line["rule"] for line in accused] in ([expected.rule], [expected.rule, *dropped])


@pytest.mark.parametrize("kind", [kind for kind in ALL_KINDS if ALL_KINDS[kind].tells_ages])
def test_who_tells_ages_is_warned_of_before_its_limit(told, kind):
    [risk] = of_rule(told["hangs", kind], "poll-at-risk")
    assert risk["at_ms"] < risk["deadline_ms"]
    assert risk["member_id"] == told["hangs", kind][-1]["member_id"]


@pytest.mark.parametrize("kind", STATIC)
def test_a_static_member_that_hangs_is_told_while_it_keeps_its_partitions(played, told, kind):
    [stuck] = of_rule(told["static", kind], "static-member-stuck")
    assert (stuck["instance_id"], stuck["cause"], stuck["evidence"]) == ("i1", "poll-interval", STATIC[kind])
    limit_ms = played[0].acted_ms["static", kind] + LIMIT_MS
    assert -3_000 < stuck["at_ms"] - limit_ms < STATIC_SESSION_MS


def test_who_hangs_through_a_revocation_is_reported_as_hanging(played, told):
    """Once it has pushed for longer than its limit, its pushes show why it did not give up the partition."""
    accused = [line for line in told["revoked", REVOKED] if line["rule"] in VIOLATIONS]
    assert [line["rule"] for line in accused] == ["rebalance-timeout"]
    assert accused[0]["member_id"] == played[0].clients["revoked", REVOKED].member_id
    assert accused[0]["at_ms"] - (played[0].acted_ms["revoked", REVOKED] + LIMIT_MS) < 60_000
    assert accused[0]["cause"] == "poll-interval"


@pytest.mark.parametrize("kind", UNTOLD_KINDS)
def test_of_who_tells_nothing_it_is_told_that_it_lives_and_may_have_stopped_polling(told, in_the_end, kind):
    """It keeps asking for its coordinator, whether it hangs or has unsubscribed; a closed one does not."""
    assert [line["severity"] for line in of_rule(told["hangs", kind], "left-without-reason")] == ["info"]
    assert "and lives" in in_the_end[name("hangs", kind)].summary
    assert all("and lives" not in in_the_end[group].summary for group in in_the_end if group.startswith("closed"))


@pytest.mark.parametrize(("fate", "kind"), GUILTLESS)
def test_nobody_else_is_told_to_have_exceeded_it(played, told, fate, kind):
    accused = [line for line in told[fate, kind] if line["rule"] in VIOLATIONS]
    if fate == "killed":
        assert [(line["rule"], line["cause"]) for line in accused] == [("session-expired", "session-timeout")]
    else:
        assert accused == []


@pytest.mark.parametrize("kind", KINDS)
def test_who_polls_late_but_in_time_is_warned_of_at_most(told, kind):
    """On a busy machine a heartbeat may be late, too, and that is reported as such."""
    assert {line["rule"] for line in told["late", kind]} <= {"poll-at-risk", "session-at-risk"}


@pytest.mark.parametrize(("fate", "kind"), GROUPS)
def test_with_telemetry_that_is_30_s_late_nothing_false_is_told(told_late, fate, kind):
    accused = [line for line in told_late[fate, kind] if line["rule"] in VIOLATIONS]
    if fate == "killed":
        assert {line["cause"] for line in accused} <= {"session-timeout"}
    elif fate in ("hangs", "static", "revoked"):
        assert {line["cause"] for line in accused} <= {"poll-interval"}
    else:
        assert accused == []


@pytest.mark.parametrize(("fate", "kind"), [group for group in GUILTLESS if group[0] not in ("killed", "late")])
def test_the_cause_of_a_leave_is_unknown_before_any_line_is_read(told_before_any_line, fate, kind):
    """A record shows that the member is gone long before a line shows why."""
    [removed] = of_rule(told_before_any_line[fate, kind], "member-removed")
    assert (removed["cause"], removed["evidence"], removed["severity"]) == ("unknown", "inferred", "info")
