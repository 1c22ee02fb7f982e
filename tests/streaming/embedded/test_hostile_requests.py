"""Requests that need no right, to a real broker: what its request log makes of them, the monitor reads."""

import pytest

from coordinator_model.decode.parse import TELEMETRY, SourceRow, parse_row
from coordinator_model.events import Tick
from streaming.embedded import TELEMETRY_TOPIC, ask
from tests.support.kafka_io import read_until

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("broker_parts")]
LIST_GROUPS = 16


def ask_for_groups(broker, state, client_id):
    """ListGroups version 4, as any client may send it: header tags, an array of one state, tags."""
    size = len(state) + 1
    length = bytes([size & 0x7F | 0x80, size >> 7])
    body = b"\0\x02" + length + state.encode() + b"\0"
    ask.request(broker.node(1).port, LIST_GROUPS, version=4, body=body, client_id=client_id)


def test_a_probe_with_thousands_of_digits_is_a_line_like_any_other(broker):
    """One such request ended `run` for good."""
    ask_for_groups(broker, "probe-" + "1" * 5_000, "group-monitor-probe")
    records = read_until(
        broker.bootstrap_servers, TELEMETRY_TOPIC, lambda found: any(is_it(record) for record in found)
    )
    [line] = [record for record in records if is_it(record)]
    place = (line.topic, line.partition, line.offset, line.timestamp)
    [tick] = parse_row(SourceRow(TELEMETRY, *place, line.key, line.value))
    assert isinstance(tick, Tick)
    assert (tick.broker, tick.probe) == ("broker-1", None)


def is_it(record):
    return b"1" * 5_000 in record.value
