"""A broker whose lines are dated by a shipper's clock that is wrong, while its records are dated by its own."""

import pytest

from coordinator_model.brokers.blindness import MISDATED
from coordinator_model.capture_replay import _transitions
from coordinator_model.decode.parse import parse_row
from coordinator_model.decode.source_row import TELEMETRY
from coordinator_model.group_report import read_outputs
from coordinator_model.incidents import Kind
from coordinator_model.shard.outputs import OFF_ITS_RECORDS
from coordinator_model.shard.shard import Shard, ShardSettings
from coordinator_model.states import MEMBER_REMOVED, SESSION_EXPIRED
from tests.support.story import T0, consumers

SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=T0, consumer_session_timeouts_ms={"": 6_000})
HOUR_MS = 3_600_000
BATCH_MS = 2_000
MENDED_MS = 30_000


def two_deaths():
    """m2 dies at 10 s, m3 joins at 35 s and dies at 41 s. The session timeout is 6 s."""
    story = consumers("m1", "m2").hellos("m1", 1_000, 16_000, 2).hellos("m2", 1_400, 9_400, 2)
    story.gone(15_400, "m2").epoch(15_400, 3).target(15_400, 3)
    story.current(17_000, "m1", 3).hello(17_005, "m1", 2, 3).hellos("m1", 18_000, 35_000, 3)
    story.member(35_000, "m3").epoch(35_000, 4).target(35_000, 4).current(35_000, "m3", 4).hello(35_005, "m3", 0, 4)
    story.current(36_000, "m1", 4).hello(36_005, "m1", 3, 4).hellos("m1", 37_000, 47_000, 4)
    story.hellos("m3", 36_200, 41_200, 4).gone(47_200, "m3").epoch(47_200, 5).target(47_200, 5)
    return story.current(48_000, "m1", 5).hello(48_005, "m1", 4, 5).hellos("m1", 49_000, 60_000, 5)


def play(off_by_ms, mended_ms):
    """Play the story in batches, restored after each. Until ``mended_ms`` lines are dated by a clock that is off."""
    shard, outputs = Shard.restore(0, SETTINGS, None), []
    rows = two_deaths().source_rows(60_000)
    for end_ms in range(BATCH_MS, 60_000 + BATCH_MS, BATCH_MS):
        events = []
        for row in rows:
            at_ms = row.timestamp_ms - T0
            if not end_ms - BATCH_MS <= at_ms < end_ms:
                continue
            is_off = row.source == TELEMETRY and at_ms < mended_ms
            events += parse_row(row._replace(timestamp_ms=row.timestamp_ms + off_by_ms * is_off))
        outputs += [{**o, "seq": len(outputs) + n} for n, o in enumerate(shard.apply(events))]
        shard = Shard.restore(0, SETTINGS, shard.dump())
    opened = [t.incident for t in _transitions(read_outputs(outputs), SETTINGS) if t.kind is Kind.OPENED]
    return outputs, [(i.rule, i.subject) for i in opened if i.rule in (MEMBER_REMOVED, SESSION_EXPIRED)], shard


@pytest.mark.parametrize("off_by_ms", [HOUR_MS, -HOUR_MS])
def test_misdated_lines_are_left_out_until_they_agree_with_records(off_by_ms):
    outputs, told, shard = play(off_by_ms, MENDED_MS)
    assert told == [(MEMBER_REMOVED, "m2"), (SESSION_EXPIRED, "m3")]
    blind = [(o["broker"], o["until_ms"] is None) for o in outputs if o["kind"] == "blind" and o["why"] == MISDATED]
    assert blind == [("broker-1", True), ("broker-1", False)]
    quarantined = [o["detail"] for o in outputs if o["kind"] == "quarantine" and o["reason"] == OFF_ITS_RECORDS]
    assert set(quarantined) == {"broker-1"}
    assert len(quarantined) <= 60_000 // BATCH_MS  # one row a batch, however many lines are left out
    assert shard.clock.coordinator == "broker-1"


def test_lines_with_good_dates_are_all_read():
    outputs, told, _ = play(0, MENDED_MS)
    assert told == [(SESSION_EXPIRED, "m2"), (SESSION_EXPIRED, "m3")]
    assert not [o for o in outputs if o["kind"] in ("blind", "quarantine")]


def test_lines_a_little_off_are_read_but_removals_have_no_known_cause():
    outputs, told, shard = play(-3_000, 60_000)
    assert {rule for rule, _ in told} == {MEMBER_REMOVED}
    assert shard.clock.brokers.keys() == {"broker-1"}
    assert [o["why"] for o in outputs if o["kind"] == "blind"] == [MISDATED]
