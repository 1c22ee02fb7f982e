"""The job goes on when telemetry breaks, the broker goes away, or strangers choose hostile names."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from urllib.parse import quote

import pytest
import requests
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from coordinator_model.shard.sharding import shard_of
from streaming.embedded import EmbeddedCluster
from tests.benchmarks import synthetic
from tests.benchmarks.synthetic import Member
from tests.e2e.crash_cluster import PARTITIONS, LiveCluster, now_ms
from tests.e2e.crash_job import ROOT, Job
from tests.support import records
from tests.support.needs import need_broker

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1_200)]

OUTAGE_S = 20.0  # telemetry counts as stalled after 15
HOSTILE = [
    "<script>alert(1)</script>",
    "../../etc/passwd?x=1#y",
    "'; DROP TABLE incidents; --",
    "%s %n {0} ${jndi:ldap://x/y} \\u0000",
    'quote " backslash \\ newline \n tab \t nul \0 end',
    "\u202egnp.exe \U0001f480 \ufeff",
    "g" * 5_000,
    " ",
]
TEXT_FORMAT = (
    b"Completed request:RequestHeader(apiKey=HEARTBEAT, apiVersion=4, clientId=c, correlationId=7) -- {group_id=g},"
    b"response:{throttle_time_ms=0,error_code=0} from connection 127.0.0.1:9092-127.0.0.1:1-0;totalTime:0.5"
)


@pytest.fixture(scope="module")
def broker():
    need_broker()
    with EmbeddedCluster(telemetry=False, create_telemetry_topic=False) as cluster:
        yield cluster


@pytest.fixture
def job(tmp_path):
    jobs = []

    def start(cluster):
        jobs.append(Job(cluster, tmp_path))
        jobs[0].start()
        jobs[0].await_rows("SELECT 1 FROM groups WHERE members = 2", lambda rows: len(rows) == len(cluster.groups))
        jobs[0].await_batches(2)
        return jobs[0]

    yield start
    jobs[0].kill()


def test_outages_of_telemetry_and_broker_make_one_incident_each_and_accuse_nobody(broker, job):
    with LiveCluster(broker, "outages", ["orders", "payments", "audit"], size=2) as cluster:
        running = job(cluster)
        with cluster.muted():
            begin_ms = now_ms()
            the_group_without_a_name_commits(cluster)
            stalled = running.await_rows("SELECT body FROM incidents WHERE rule = 'telemetry-stalled'")
            assert json.loads(stalled[0][0])["opened_ms"] == pytest.approx(begin_ms, abs=1_000)
            running.await_rows("SELECT sum(members_unknown) FROM groups", lambda rows: rows == [(6,)])
        closed_in_turn(running, 1)

        with cluster.away():
            broker.node(1).stop()
            time.sleep(OUTAGE_S)
            broker.node(1).start()
        cluster.at(now_ms(), cluster.someone_dies)
        closed_in_turn(running, 2)
        running.until(lambda: cluster.deaths)
        running.await_progress(now_ms() + 3_000)

        accused = [(row["group"], row["member_id"]) for row in running.incidents("session-expired")]
        assert accused == [death[:2] for death in cluster.deaths]
        rules = {rule for (rule,) in running.rows("SELECT DISTINCT rule FROM incidents")}
        # The last is true of these groups once they are stable for a minute: their session timeout is Kafka's minimum.
        known = {
            "telemetry-stalled",
            "session-expired",
            "session-at-risk",
            "coordinator-paused",
            "timeouts-inconsistent",
        }
        assert rules <= known
        assert len(running.incidents("telemetry-stalled")) == 2
        running.await_rows("SELECT sum(members_unknown) FROM groups", lambda rows: rows == [(0,)])


def closed_in_turn(running, number):
    """Wait until so many stalls are closed, each because telemetry is back."""
    sql = "SELECT reason FROM incidents WHERE rule = 'telemetry-stalled' AND closed_ms IS NOT NULL"
    assert set(running.await_rows(sql, lambda rows: len(rows) == number)) == {("telemetry-back",)}


def the_group_without_a_name_commits(cluster):
    """Old clients may commit offsets under the group id "", which elsewhere in the monitor means a broker."""
    key = records.commit_key("", "t", 0)
    value = records.commit_value(5, now_ms())
    producer = Producer({"bootstrap.servers": cluster.broker.bootstrap_servers})
    producer.produce(cluster.records, value, key, shard_of("", PARTITIONS))
    producer.flush()


def test_hostile_names_and_broken_rows_from_kafka_to_the_page(broker, job):
    with LiveCluster(broker, "hostile", HOSTILE, size=2) as cluster:
        running = job(cluster)
        broken = send_broken_rows(cluster)
        for group in HOSTILE:
            cluster.at(now_ms(), lambda ms, group=group: cluster.someone_dies(ms, group))
        running.until(lambda: cluster.deaths, lambda deaths: len(deaths) == len(HOSTILE))
        expired = running.await_rows(
            "SELECT body FROM incidents WHERE rule = 'session-expired'", lambda rows: len(rows) == len(HOSTILE)
        )
        assert sorted(json.loads(body)["member_id"] for (body,) in expired) == sorted(
            d.member_id for d in cluster.deaths
        )
        assert sorted(json.loads(body)["group"] for (body,) in expired) == sorted(HOSTILE)

        kept = running.rows('SELECT source, topic, "partition", "offset", head, reason FROM quarantine')
        assert sorted(row[:5] for row in kept) == sorted(broken)
        assert all(reason for *_, reason in kept)
        counted = running.rows("SELECT sum(value) FROM counters WHERE name LIKE 'quarantined:%'")
        assert counted == [(len(broken),)]
        running.kill()
    with served(running.config) as url:
        every_name_is_served(url)


def every_name_is_served(url):
    for group in HOSTILE:
        path = quote(group, safe="")
        assert requests.get(f"{url}/api/v1/groups/{path}", timeout=30).json()["group"] == group
        page = requests.get(f"{url}/groups/{path}", timeout=30)
        assert page.status_code == 200
        assert page.text.count("<script") == 1, "the page's own, no stranger's"
        assert "alert(1)</" not in page.text
    listed = {row["group"] for row in requests.get(f"{url}/api/v1/incidents", timeout=30).json()}
    assert listed == set(HOSTILE)
    exposed = text_string_to_metric_families(requests.get(f"{url}/metrics", timeout=30).text)
    named = {sample.labels.get("group") for family in exposed for sample in family.samples}
    storable = {group.replace("\0", "\N{REPLACEMENT CHARACTER}") for group in HOSTILE if len(group) < 100}
    assert storable <= named


def send_broken_rows(cluster):
    """Send what nobody can read; return what the quarantine must have: source, topic, partition, offset, head."""
    lines, records = ("telemetry", cluster.lines), ("offsets", cluster.records)
    half = synthetic.heartbeat_line("orders", Member(1), 1)[:400]
    rows = [
        (*lines, b"broker-1", half, half),
        (*lines, b"broker-1", TEXT_FORMAT, TEXT_FORMAT),
        (*lines, b"broker-1", b"x" * 990_000, b"x" * 96),
        (*lines, b"broker-1", b"\xff\xfe not text", b"\xff\xfe not text"),
        (*records, b"\x00\x63 unknown type", b"\x00\x00", b"\x00\x63 unknown type"),
        (*records, b"\x00\x02\x00\x06ord", b"\x00\x03", b"\x00\x02\x00\x06ord"),
        (*records, None, b"no key", b"no key"),
    ]
    expected = []
    producer = Producer({"bootstrap.servers": cluster.broker.bootstrap_servers})
    for source, topic, key, value, head in rows:

        def sent(error, message, source=source, head=head):
            assert error is None
            expected.append((source, message.topic(), message.partition(), message.offset(), head[:96]))

        producer.produce(topic, value, key, 0, on_delivery=sent)
    producer.flush()
    assert len(expected) == len(rows)
    return expected


@contextmanager
def served(config):
    """Run the real `serve`; yield its address."""
    command = [sys.executable, "-m", "streaming.cli", "serve", "--config", str(config)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield next(json.loads(line)["url"] for line in process.stderr if '"listening"' in line)
        finally:
            process.kill()


def test_a_typo_in_the_configuration_of_run_is_one_clear_line(tmp_path):
    config = tmp_path / "monitor.toml"
    config.write_text("[run]\ntrigger = 1000\n")
    command = [sys.executable, "-m", "streaming.cli", "run", "--config", str(config)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr == f'{config}:2: unknown key "trigger" in [run]; did you mean "trigger_ms"?\n'
