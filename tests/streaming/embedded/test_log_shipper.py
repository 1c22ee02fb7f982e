"""A real log shipper between a real broker's file and the topic: rsyslog, with the configuration that is shipped."""

import json

import pytest
from click.testing import CliRunner

from coordinator_model.decode.parse import RejectedRow, parse_row
from coordinator_model.decode.source_row import TELEMETRY, SourceRow
from coordinator_model.events import JoinAnswered, Tick
from streaming.cli import main
from streaming.embedded import TELEMETRY_TOPIC, EmbeddedCluster, ask
from tests.streaming.embedded.shipper import program, shipping
from tests.support import requests
from tests.support.kafka_io import produce, read_until
from tests.support.waiting import await_true

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("broker_parts", "rsyslog")]
MIB = 1 << 20


@pytest.fixture(scope="module")
def rsyslog():
    found = program()
    if found is None:
        pytest.skip("rsyslogd with omkafka is not installed (Debian: rsyslog-kafka)")
    return found


def snippet(file):
    result = CliRunner().invoke(main, ["log4j2", "--alone", "--file", str(file)])
    assert result.exit_code == 0, result.output
    return {"log4j2.yaml": result.output}


def events_of(records):
    rows = [SourceRow(TELEMETRY, r.topic, r.partition, r.offset, r.timestamp, r.key, r.value) for r in records]
    told = [parse_row(row) for row in rows]
    assert not [rejected for rejected in told if isinstance(rejected, RejectedRow)]
    return [event for events in told for event in events]


def asked_by(client_id, records):
    return [record for record in records if f'"clientId":"{client_id}"'.encode() in record.value]


def test_a_shipper_delivers_whole_lines_under_the_brokers_key(rsyslog, tmp_path):
    """A shipper that lost its place sends them once more."""
    file = tmp_path / "group-telemetry.log"
    with EmbeddedCluster(telemetry=False, log4j2=snippet(file)) as cluster:
        servers, port = cluster.bootstrap_servers, cluster.nodes[0].port
        cluster.create_topic("produced", partitions=1)
        produce(servers, "produced", b"not about a group")
        ask.list_groups(port, "group-monitor-probe")
        large = requests.join_group("large", metadata=bytes(MIB))  # 1.4 MiB in base64
        ask.request(port, requests.JOIN_GROUP, version=4, body=large, client_id="large")
        await_true(lambda: b'"clientId":"large"' in file.read_bytes())  # a broker writes the line after the answer
        ask.list_groups(port, "last")
        with shipping(rsyslog, tmp_path, servers, file):
            first = read_until(servers, TELEMETRY_TOPIC, lambda records: asked_by("last", records))
        for state in tmp_path.glob("imfile-state*"):
            state.unlink()
        with shipping(rsyslog, tmp_path, servers, file):
            again = read_until(servers, TELEMETRY_TOPIC, lambda records: len(asked_by("last", records)) == 2)
    assert {(record.key, record.partition) for record in again} == {(b"broker-1", first[0].partition)}
    assert not [record for record in first if b'"requestApiKeyName":"PRODUCE"' in record.value]
    assert any(len(record.value) > MIB for record in asked_by("large", first))
    events = events_of(first)
    [join] = [event for event in events if isinstance(event, JoinAnswered)]
    assert (join.group, join.broker) == ("large", "broker-1")
    assert any(isinstance(event, Tick) for event in events)
    assert [event.order_ms for event in events] == [event.order_ms for event in events_of(again)][: len(events)]
    assert len(again) == 2 * len(first)


def test_the_instant_of_a_line_is_the_brokers_not_the_shippers(rsyslog, tmp_path):
    """As if it had been read a minute later."""
    file = tmp_path / "group-telemetry.log"
    with EmbeddedCluster(telemetry=False, log4j2=snippet(file)) as cluster:
        ask.list_groups(cluster.nodes[0].port, "group-monitor-probe")
        with shipping(rsyslog, tmp_path, cluster.bootstrap_servers, file):
            records = read_until(
                cluster.bootstrap_servers, TELEMETRY_TOPIC, lambda rs: asked_by("group-monitor-probe", rs)
            )
    [record] = asked_by("group-monitor-probe", records)
    line = json.loads(record.value.partition(b"Completed request:")[2].rpartition(b" (")[0])
    assert line["requestHeader"]["requestApiKeyName"] == "LIST_GROUPS"
    [tick] = events_of([record._replace(timestamp=record.timestamp + 60_000)])
    assert abs(tick.order_ms - record.timestamp) < 5_000
