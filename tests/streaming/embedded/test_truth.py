"""The broker's own log as truth: lines as Kafka 4.3.1 wrote them, and what they amount to."""

from datetime import UTC, datetime

import pytest

from streaming.embedded.truth import (
    TruthEvent,
    authoritative,
    missed_rebalances,
    parse_line,
    read_truth,
    session_expiries,
)

MANAGER = "(org.apache.kafka.coordinator.group.GroupMetadataManager)"
RUNTIME = "(org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime)"
AT_MS = round(datetime(2026, 11, 21, 4, 8, 4, tzinfo=UTC).timestamp() * 1000) + 8
M = "confluent-0-8b88f37a-ff54-4188-a0fc-1e7f72a7d093"
N = "c, 2-2d6027b6-10a0-4424-849e-49dc7750d5dc"
K = "91Bh2dLvRDSmzJtX7ROacw"
WRITE = "CoordinatorWriteEvent(name=classic-group-join)"


def line(
    message: str, *, logger: str = MANAGER, part: str = "GroupCoordinator id=1 topic=__consumer_offsets partition=30"
):
    return f"[2026-11-21T04:08:04,008] INFO [{part}] {message} {logger}\n"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            f"Member {M} in group a group has failed, removing it from the group.",
            [("session-expired", "a group", M, "")],
        ),
        (
            "[GroupId g] Member oXdXT7tWRtK6bGUvZzOleQ fenced from the group because the member session expired.",
            [("session-expired", "g", "oXdXT7tWRtK6bGUvZzOleQ", "")],
        ),
        (
            "[GroupId g] Member oXdX fenced from the group because it failed to transition from epoch 5 within 800ms.",
            [("rebalance-timeout", "g", "oXdX", "failed to transition")],
        ),
        (
            (
                "[GroupId g] Member oXdX fenced from the group because"
                " the classic member failed to join within the rebalance timeout."
            ),
            [("rebalance-timeout", "g", "oXdX", "failed to join")],
        ),
        (
            "[GroupId g] Member oXdX fenced from the group because the member failed to sync within timeout.",
            [("rebalance-timeout", "g", "oXdX", "failed to sync")],
        ),
        (
            f"Group g removed dynamic members who haven't joined: [{M}, {N}]",
            [("rebalance-timeout", "g", M, "joined"), ("rebalance-timeout", "g", N, "joined")],
        ),
        (
            f"Group g removed dynamic members who haven't joined: [{K}, {M}, {K}]",
            [("rebalance-timeout", "g", member, "joined") for member in (K, M, K)],
        ),
        ("[GroupId g] Member m joins the share group using the share protocol.", [("joined", "g", "m", "share")]),
        ("[GroupId g] Member m left the share group.", [("left", "g", "m", "")]),
        ("[GroupId g][MemberId m] Member joins the streams group.", [("joined", "g", "m", "")]),
        ("[GroupId g][MemberId m] Member m left the streams group.", [("left", "g", "m", "")]),
        (
            (
                "Preparing to rebalance group g in state PreparingRebalance with old generation 4"
                f" (reason: Removing [{M}] on pending sync request expiration)."
            ),
            [("rebalance-timeout", "g", M, "pending sync request")],
        ),
        (
            f"Preparing to rebalance group g in state Stable with old generation -1 (reason: removing member {M}).",
            [("rebalance", "g", "", f"removing member {M}")],
        ),
        (
            f"Pending member {M} in group g has been removed after session timeout expiration.",
            [("pending-expired", "g", M, "")],
        ),
        (
            (
                f"[Group g] Member {M} has left group through explicit `LeaveGroup` request;"
                " client reason: consumer poll timeout has expired."
            ),
            [("left", "g", M, "consumer poll timeout has expired.")],
        ),
        ("[GroupId g] Member oXdX left the consumer group.", [("left", "g", "oXdX", "")]),
        (
            "[GroupId g] Static member oXdX with instance id i 1 temporarily left the consumer group.",
            [("left-temporarily", "g", "oXdX", "")],
        ),
        (
            (
                "Static member with groupInstanceId=i2 and unknown member id joins group g in Stable state. Replacing"
                f" previously mapped member {M} with this groupInstanceId."
            ),
            [("replaced", "g", M, "")],
        ),
        (
            (
                "[GroupId g] Static member with instance id i1 re-joins the consumer group using the consumer protocol."
                " Created a new member new to replace the existing member old."
            ),
            [("replaced", "g", "old", "new")],
        ),
        (
            (
                f"Failed to persist metadata for group g static member new with group instance id i1 due to {WRITE}"
                f" timed out after 5000ms. Reverting to old member id {M}."
            ),
            [("restored", "g", M, "")],
        ),
        ("Stabilized group g generation 3 with 2 members.", [("generation", "g", "", "3 with 2")]),
        ("Some other thing happened to group g.", []),
    ],
)
def test_each_wording_of_the_coordinator_is_read(message, expected):
    events = parse_line(line(message), "broker-1")
    assert [(event.kind, event.group, event.member_id, event.detail) for event in events] == expected
    assert all((event.at_ms, event.broker, event.partition) == (AT_MS, "broker-1", 30) for event in events)


def test_a_partition_that_is_loaded_is_named_by_the_event():
    loaded = line(
        "Finished loading of metadata from __consumer_offsets-12 with epoch 0 in 1ms where 1ms was spent in the"
        " scheduler. Loaded 0 records which total to 0 bytes.",
        logger=RUNTIME,
        part="GroupCoordinator id=1",
    )
    (event,) = parse_line(loaded, "broker-1")
    assert (event.kind, event.partition) == ("coordinator-loaded", 12)


@pytest.mark.parametrize(
    "text", ["", "\n", "  at java.lang.Thread.run(Thread.java)", "[2026-11-21T04:08:04,008] INFO x"]
)
def test_what_is_no_log_line_is_no_event(text):
    assert parse_line(text, "broker-1") == ()


def test_the_timer_of_a_dead_group_removes_nobody(tmp_path):
    """One that was unloaded, or became a group of consumers, before its join phase timed out."""
    removed = line(f"Group g removed dynamic members who haven't joined: [{M}]")
    dead = line("Group g is dead, skipping rebalance stage.")
    for name, lines, kinds in (("dead", [removed, dead], ["dead"]), ("live", [removed], ["rebalance-timeout"])):
        (tmp_path / name).write_text("\n".join(lines))
        assert [event.kind for event in read_truth({"broker-1": [tmp_path / name]})] == kinds


def test_logs_of_several_brokers_are_merged_by_instant(tmp_path):
    left = "[Group g] Member m has left group through explicit `LeaveGroup` request; client reason: not provided"
    for broker, second in (("broker-1", "05"), ("broker-2", "04"), ("broker-3", "06")):
        (tmp_path / broker).write_text(
            f"noise \xff\n{line(left).replace('08:04,', f'08:{second},')}", encoding="latin-1"
        )
    truth = read_truth({path.name: [path] for path in tmp_path.iterdir()})
    assert [event.broker for event in truth] == ["broker-2", "broker-1", "broker-3"]


def event(kind: str, at_ms: int, *, broker: str = "broker-1", member_id: str = "m") -> TruthEvent:
    group, member_id = ("", "") if kind.startswith("coordinator") else ("g", member_id)
    return TruthEvent(kind, group, member_id, at_ms, broker, 7, "", "")


def test_a_broker_is_not_heard_on_groups_that_another_has_taken_over():
    events = [
        event("coordinator-loaded", 0),
        event("session-expired", 10_000),
        event("coordinator-loaded", 20_000, broker="broker-2"),
        event("session-expired", 30_000),
        event("session-expired", 40_000, broker="broker-2"),
    ]
    assert [(e.at_ms, e.broker) for e in authoritative(events) if e.kind == "session-expired"] == [
        (10_000, "broker-1"),
        (40_000, "broker-2"),
    ]


def test_an_expiry_logged_again_is_the_same_until_the_member_joins_again():
    events = [
        event("session-expired", 1),
        event("session-expired", 2),
        event("session-expired", 3, member_id="other"),
        event("joined", 4),
        event("session-expired", 5),
    ]
    assert [[e.at_ms for e in expiry.lines] for expiry in session_expiries(events)] == [[1, 2], [3], [5]]


def test_a_missed_rebalance_that_the_next_coordinator_ends_too_is_one():
    """The revocation timer runs at the deposed broker, which cannot write the removal, and at the next one."""
    events = [
        event("coordinator-loaded", 20_000, broker="broker-2"),
        event("rebalance-timeout", 22_000),
        event("rebalance-timeout", 22_300, broker="broker-2"),
        event("joined", 23_000, broker="broker-2"),
        event("rebalance-timeout", 30_000, broker="broker-2"),
    ]
    missed = missed_rebalances(events)
    assert [([line.at_ms for line in one.lines], one.certain) for one in missed] == [
        ([22_000, 22_300], True),
        ([30_000], True),
    ]


@pytest.mark.parametrize(("restored", "missed"), [(False, []), (True, [30_000])])
def test_a_static_member_misses_its_sync_unless_it_was_replaced_for_good(restored, missed):
    events = [event("replaced", 20_000)] + [event("restored", 25_000)] * restored + [event("rebalance-timeout", 30_000)]
    assert [one.lines[0].at_ms for one in missed_rebalances(events)] == missed


@pytest.mark.parametrize(
    ("loaded_ms", "loaded_by", "certain"),
    [(11_000, "broker-2", False), (11_000, "broker-1", True), (14_000, "broker-2", True), (9_000, "broker-1", True)],
)
def test_an_expiry_is_uncertain_only_while_another_broker_takes_over(loaded_ms, loaded_by, certain):
    events = sorted(
        [event("coordinator-loaded", loaded_ms, broker=loaded_by), event("session-expired", 10_000)],
        key=lambda e: e.at_ms,
    )
    (expiry,) = session_expiries(events)
    assert expiry.certain is certain


@pytest.mark.parametrize(("ms", "broker", "certain"), [(12_000, "broker-1", False), (12_000, "broker-2", True)])
def test_an_expiry_is_uncertain_where_its_broker_lets_go_of_the_group_right_after(ms, broker, certain):
    """Its write fails with NOT_COORDINATOR as the partition is unloaded, be it long before another has loaded it."""
    events = [event("session-expired", 10_000), event("coordinator-unloaded", ms, broker=broker)]
    events.append(event("coordinator-loaded", 14_000, broker="broker-2"))
    (expiry,) = session_expiries(events)
    assert expiry.certain is certain


def test_an_expiry_that_a_reload_made_undone_is_uncertain():
    events = [event("session-expired", 1), event("coordinator-loaded", 2), event("replaced", 3)]
    (expiry,) = session_expiries(events)
    assert not expiry.certain


def test_an_expiry_of_a_member_that_had_left_is_uncertain():
    """A new coordinator may bring it back; only a join makes its expiry certain."""
    back = [event("left", 1), event("coordinator-loaded", 2), event("session-expired", 9)]
    assert [expiry.certain for expiry in session_expiries(back)] == [False]
    again = [event("left", 1), event("joined", 2), event("session-expired", 9)]
    assert [expiry.certain for expiry in session_expiries(again)] == [True]
