"""When a shard's groups could not commit, by what shards tell of their brokers."""

from coordinator_model.brokers.blindness import NO_LINES
from coordinator_model.group_report import GroupReport
from coordinator_model.rules.outages import Outages

T0 = 1_700_000_000_000


def blind(until_ms, shard=3):
    return {"kind": "blind", "shard": shard, "broker": "broker-1", "until_ms": until_ms, "why": NO_LINES}


def brokers(at_ms, *rules, holder="3"):
    findings = [{"rule": rule} for rule in rules]
    return GroupReport(cluster="c", shard=3, group="", at_ms=at_ms, findings=findings, holder=holder)


def told(*outputs, at_ms=T0 + 7, shard=3):
    outages = Outages()
    for output in outputs:
        outages.take(output)
    return outages.is_open(shard), outages.end_ms(shard, at_ms)


def test_an_outage_lasts_until_lines_are_there_again():
    assert told() == (False, 0)
    assert told(blind(None)) == (True, T0 + 7)
    assert told(blind(None), blind(T0 + 3)) == (False, T0 + 3)
    assert told(blind(T0 + 3), blind(T0 + 2)) == (False, T0 + 3)


def test_it_is_the_shards_own():
    assert told(blind(None, shard=4)) == (False, 0)


def test_clients_that_find_no_coordinator_cannot_commit():
    refused = brokers(T0 + 1, "coordinator-unavailable", "broker-clock")
    assert told(refused) == (True, T0 + 7)
    assert told(refused, brokers(T0 + 5)) == (False, T0 + 5)
    assert told(refused, brokers(T0 + 5, holder="3.1")) == (True, T0 + 7)


def test_other_reports_about_brokers_are_no_outage():
    assert told(brokers(T0 + 1, "telemetry-stalled"), brokers(T0 + 5)) == (False, 0)
