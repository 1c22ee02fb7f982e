"""The shipped sample tells four stories: one killed, one stalled, one redeployed, one that commits too little."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[3] / "streaming" / "demo" / "sample.jsonl.gz"
MAX_BYTES = 80_000
EXPIRED_MS = 1_795_859_848_346  # by the broker's log, which `streaming.demo.sample` printed as it recorded


def replay(*arguments):
    command = [sys.executable, "-m", "streaming.cli", "replay", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def printed():
    return [json.loads(line) for line in replay(str(SAMPLE)).splitlines()]


@pytest.fixture(scope="module")
def alerts(printed):
    """What would have been delivered: everything but info."""
    return [line for line in printed if line["kind"] == "incident" and line["severity"] != "info"]


def of(alerts, client_id):
    return [
        (alert["rule"], alert["transition"], alert.get("reason")) for alert in alerts if alert["client_id"] == client_id
    ]


def test_the_killed_member_is_named_with_its_deadline(alerts):
    (expired, *_) = [alert for alert in alerts if alert["client_id"] == "payments-2"]
    assert (expired["rule"], expired["transition"], expired["evidence"]) == ("session-expired", "opened", "observed")
    assert abs(expired["deadline_ms"] - EXPIRED_MS) <= 2
    assert expired["member_id"].startswith("payments-2-")
    assert expired["cause"] == "session-timeout"


def test_the_stalled_member_is_named_and_its_return_closes_the_incident(alerts):
    assert of(alerts, "orders-1") == [("poll-exceeded", "opened", None), ("poll-exceeded", "closed", "rejoined")]


def test_the_member_that_stopped_committing_a_partition_is_named(printed, alerts):
    (stalled,) = [alert for alert in alerts if alert["client_id"] == "invoices-1"]
    assert (stalled["rule"], stalled["transition"], len(stalled["partitions"])) == ("partition-stalled", "opened", 1)
    (invoices,) = [line for line in printed if line["kind"] == "group" and line["group"] == "invoices"]
    assert {member["liveness"] for member in invoices["members"]} == {"alive"}


def test_nobody_is_woken_for_the_redeployed_member(printed, alerts):
    assert {alert["client_id"] for alert in alerts} == {"payments-2", "orders-1", "invoices-1"}
    (shipping,) = [line for line in printed if line["kind"] == "group" and line["group"] == "shipping"]
    assert {member["client_id"] for member in shipping["members"]} == {"shipping-1", "shipping-2"}
    assert shipping["state"] == "Stable"


def test_the_sample_is_small_and_read_without_a_row_left_over(printed):
    assert SAMPLE.stat().st_size < MAX_BYTES
    assert printed[-1]["undecodable"] == {}


def test_replay_sample_tells_it_for_people():
    told = replay("--sample")
    for word in ("session-expired", "payments-2", "poll-exceeded", "orders-1", "rejoined", "partition-stalled"):
        assert word in told
    assert "(session-timeout, observed)" in told
    assert "unknown" not in told
