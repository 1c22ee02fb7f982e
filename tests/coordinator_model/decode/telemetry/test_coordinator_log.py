"""Lines of the coordinator's own log: each known wording, and what is refused because it could mean something else.

The Java lines are of Kafka 4.3.1: those marked *seen* come from a broker that `tests/e2e` ran, the others are the
format strings in its classes with values put in. The Scala lines are the format strings in the sources of 2.8.2 and
3.2; `test_old_brokers.py` reads what such brokers wrote.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_model.decode.parse import RejectedRow, mute_line, parse_row
from coordinator_model.decode.telemetry.coordinator_log import (
    _TELLING,
    AMBIGUOUS,
    MAX_BYTES,
    UNKNOWN_WORDING,
)
from coordinator_model.events import CoordinatorLine, Heartbeat
from tests.support.request_log import heartbeat_line
from tests.support.story import T0, events_of, telemetry

JAVA = "[GroupCoordinator id=1 topic=__consumer_offsets partition=3] "
SCALA = "[GroupCoordinator 1]: "
M1 = "app-1-f0bd8ad7-4c93-4328-986a-0c61ace90fce"
K1 = "91Bh2dLvRDSmzJtX7ROacw"
M2 = "app, 2-86ec5d8f-035e-4908-be22-8c2dc6c7196c"
SCALA_MEMBER = (
    f"MemberMetadata(memberId={M1}, groupInstanceId=Some(i-1), clientId=app, clientHost=/10.0.0.7,"
    " sessionTimeoutMs=45000, rebalanceTimeoutMs=300000, supportedProtocols=List(range))"
)
# line -> what it tells, members, and what else is told
JAVA_LINES = {
    f"Member {M1} in group g has failed, removing it from the group.": ("session-expired", (M1,), {}),  # seen
    "[GroupId g] Member m fenced from the group because the member session expired.": (  # seen
        "session-expired",
        ("m",),
        {},
    ),
    "[GroupId g] Streams member m fenced from the group because the member session expired..": (
        "session-expired",
        ("m",),
        {},
    ),
    "[GroupId g] Member m fenced from the group because it failed to transition from epoch 4 within 8000ms.": (
        "rebalance-timeout",
        ("m",),
        {},
    ),
    (
        "[GroupId g] Member m fenced from the group because the classic member failed to join within the rebalance"
        " timeout."
    ): ("rebalance-timeout", ("m",), {}),
    "[GroupId g] Member m fenced from the group because the member failed to sync within timeout.": (
        "rebalance-timeout",
        ("m",),
        {},
    ),
    f"Group g removed dynamic members who haven't joined: [{M1}]": ("rebalance-timeout", (M1,), {}),  # seen
    f"Group g removed dynamic members who haven't joined: [{M1}, {M2}]": ("rebalance-timeout", (M1, M2), {}),
    # after a downgrade, which leaves ids of KIP-848 in a classic group (seen)
    f"Group g removed dynamic members who haven't joined: [{K1}, {M2}, {K1}]": ("rebalance-timeout", (K1, M2, K1), {}),
    (
        "Preparing to rebalance group g in state PreparingRebalance with old generation 3 (reason: Removing"
        f" [{M1}, {M2}] on pending sync request expiration)."
    ): ("rebalance-timeout", (M1, M2), {}),
    f"Pending member {M1} in group g has been removed after session timeout expiration.": ("pending-gone", (M1,), {}),
    (  # seen
        f"[Group g] Member {M1} has left group through explicit `LeaveGroup` request; client reason: not provided"
    ): ("left", (M1,), {}),
    (
        f"[Group g] Member {M1} has left group through explicit `LeaveGroup` request; client reason: consumer poll"
        " timeout has expired."
    ): ("left", (M1,), {"reason": "consumer poll timeout has expired."}),
    (
        "[GroupId g] Static member m with instance id i-1 has left group through explicit `LeaveGroup` request; client"
        " reason: x"
    ): ("left", ("m",), {"instance_id": "i-1", "reason": "x"}),
    "[GroupId g] Member m left the consumer group.": ("left", ("m",), {}),  # seen
    "[GroupId g] Member m left the share group.": ("left", ("m",), {}),
    "[GroupId g][MemberId m] Member m left the streams group.": ("left", ("m",), {}),
    "[GroupId g] Static member m with instance id i-1 left the consumer group.": (
        "left",
        ("m",),
        {"instance_id": "i-1"},
    ),
    "[GroupId g] Static member m with instance id i-1 temporarily left the consumer group.": (
        "left-for-a-while",
        ("m",),
        {"instance_id": "i-1"},
    ),
    (  # seen
        "Static member with groupInstanceId=i-1 and unknown member id joins group g in Stable state. Replacing"
        f" previously mapped member {M1} with this groupInstanceId."
    ): ("replaced", (M1,), {"instance_id": "i-1"}),
    (
        "[GroupId g] Static member with instance id i-1 re-joins the consumer group using the consumer protocol."
        " Created a new member m2 to replace the existing member m1."
    ): ("replaced", ("m1",), {"instance_id": "i-1"}),
    (  # seen
        "[GroupId g] Static member m2 with instance id i-1 cannot join the group because the instance id is owned by"
        " member m1."
    ): ("fenced", ("m2",), {"instance_id": "i-1"}),
    f"Pending dynamic member with id {M1} joins group g in Empty state. Adding to the group now.": (  # seen
        "joined",
        (M1,),
        {},
    ),
    "[GroupId g] Member m joins the consumer group using the consumer protocol.": ("joined", ("m",), {}),  # seen
    (  # seen
        "Preparing to rebalance group g in state PreparingRebalance with old generation 1 (reason: removing member"
        f" {M1} on heartbeat expiration.)."
    ): ("rebalance", (), {"reason": f"removing member {M1} on heartbeat expiration."}),
    "Stabilized group g generation 2 with 1 members.": ("generation", (), {}),  # seen
    "Group g with generation 2 is now empty.": ("emptied", (), {}),  # seen
}
SCALA_LINES = {
    f"Member {M1} in group g has failed, removing it from the group": ("session-expired", (M1,), {}),
    f"Group g removed dynamic members who haven't joined: Set({M1}, {M2})": ("rebalance-timeout", (M1, M2), {}),
    (
        "Preparing to rebalance group g in state PreparingRebalance with old generation 3 (__consumer_offsets-3)"
        f" (reason: Removing Set({M1}) on pending sync request expiration)"
    ): ("rebalance-timeout", (M1,), {}),
    f"Pending member {M1} is leaving group g.": ("pending-gone", (M1,), {}),
    f"Pending member with memberId={M1} has left group g through explicit `LeaveGroup` request": (
        "pending-gone",
        (M1,),
        {},
    ),
    f"Member[group.instance.id None, member.id {M1}] in group g has left, removing it from the group": (
        "left",
        (M1,),
        {},
    ),
    f"Member {SCALA_MEMBER} has left group g through explicit `LeaveGroup`; client reason: not provided": (
        "left",
        (M1,),
        {"instance_id": "i-1", "client_id": "app", "client_host": "10.0.0.7"},
    ),
    (
        "Preparing to rebalance group g in state PreparingRebalance with old generation 3 (__consumer_offsets-3)"
        " (reason: Adding new member x with group instance id None)"
    ): ("rebalance", (), {"reason": "Adding new member x with group instance id None"}),
    "Stabilized group g generation 4 (__consumer_offsets-3) with 2 members": ("generation", (), {}),
    "Group g with generation 5 (__consumer_offsets-3)": None,
    "Group g with generation 5 is now empty (__consumer_offsets-3)": ("emptied", (), {}),
}


def read(line, **where):
    [event] = events_of(line, **where)
    return event


def reason_of(line):
    rejected = events_of(line)
    return rejected.reason if isinstance(rejected, RejectedRow) else rejected


@pytest.mark.parametrize("text", [*JAVA_LINES])
def test_each_wording_of_java_tells_what_happened_to_whom(text):
    what, members, more = JAVA_LINES[text]
    event = read(JAVA + text, at_ms=T0 + 5)
    assert (event.group, event.what, event.members, event.shard) == ("g", what, members, 3)
    assert (event.order_ms, event.broker) == (T0 + 5, "broker-1")
    named = {"instance_id": None, "reason": "", "client_id": "", "client_host": ""}
    assert {name: getattr(event, name) for name in named} == named | more


@pytest.mark.parametrize("text", [*SCALA_LINES])
def test_each_wording_of_scala_tells_what_happened_to_whom(text):
    if SCALA_LINES[text] is None:
        assert reason_of(SCALA + text) == UNKNOWN_WORDING
        return
    what, members, more = SCALA_LINES[text]
    event = read(SCALA + text)
    assert (event.group, event.what, event.members) == ("g", what, members)
    named = {"instance_id": None, "reason": "", "client_id": "", "client_host": ""}
    assert {name: getattr(event, name) for name in named} == named | more


LOADS = {
    (
        "[GroupCoordinator id=1] Finished loading of metadata from __consumer_offsets-7 with epoch 0 in 1ms where 1ms"
        " was spent in the scheduler. Loaded 0 records which total to 0 bytes."
    ): "loaded",
    "[GroupCoordinator id=1] Finished unloading metadata for __consumer_offsets-7 with epoch 3.": "unloaded",
    (
        "[GroupMetadataManager brokerId=1] Finished loading offsets and group metadata from __consumer_offsets-7 in 5"
        " milliseconds for epoch 3, of which 1 milliseconds was spent in the scheduler."
    ): "loaded",
    "[GroupCoordinator 1]: Resigned as the group coordinator for partition 7 in epoch Some(4)": "unloaded",
}


@pytest.mark.parametrize("line", LOADS)
def test_loads_and_resignations_name_the_partition(line):
    event = read(line)
    assert (event.what, event.group, event.shard) == (LOADS[line], "", 7)


OF_NO_INTEREST = [  # seen, each of them
    JAVA + "[GroupId g] Bumped group epoch to 2 with metadata hash -326.",
    JAVA + "[GroupId g] Computed a new target assignment for epoch 2 with 'uniform' assignor in 0ms.",
    JAVA + "The write event Timeout(key=heartbeat-g-m) for the timer heartbeat-g-m failed due to x failed due to y",
    (
        "[GroupCoordinator id=3] Ignored unloading metadata for __consumer_offsets-37 in epoch OptionalInt[0] since"
        " metadata was never loaded."
    ),
    "[GroupCoordinator id=1] Startup complete.",
]


@pytest.mark.parametrize("line", OF_NO_INTEREST)
def test_what_is_of_no_interest_is_no_event_and_no_rejection(line):
    assert events_of(line) == []


@pytest.mark.parametrize(
    "text",
    [
        "Mitglied m in Gruppe g ist ausgefallen und wird entfernt.",
        "Member m in group g has failed, removing it from the group!",
        "Member m in group g has failed, removing it from the group.\n",
        "has failed, removing it from the group.",
        "Member  in group g has failed, removing it from the group. ",
    ],
)
def test_another_wording_is_counted_and_never_guessed_at(text):
    assert reason_of(JAVA + text) == UNKNOWN_WORDING


@pytest.mark.parametrize(
    "text",
    [
        "Member a in group b in group g has failed, removing it from the group.",
        "[GroupId g] Member x] Member victim left the consumer group.",
        (
            "[Group g] Member x has left group through explicit `LeaveGroup` request; client reason: y has left group"
            " through explicit `LeaveGroup` request; client reason: z"
        ),
        "[GroupId g] Member x updated its subscribed regex to: y left the consumer group.",
        "Preparing to rebalance group a in state b in state c with old generation 3 (reason: x).",
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(text):
    """Ids and reasons are chosen by strangers, and may look like the rest of the line."""
    assert reason_of(JAVA + text) in (AMBIGUOUS, UNKNOWN_WORDING)


def test_a_group_id_may_hold_any_text_as_long_as_there_is_one_reading():
    group = 'x"\n\u2028] [GroupCoordinator id=9] Completed request:{} (kafka.x)'
    event = read(f"{JAVA}[GroupId {group}] Member m left the consumer group.")
    assert (event.group, event.members) == (group, ("m",))


@pytest.mark.parametrize(
    "text", ["Member  in group g has failed, removing it from the group.", "[GroupId ] Member m left the share group."]
)
def test_a_member_or_group_without_an_id_is_none(text):
    assert isinstance(events_of(JAVA + text), RejectedRow)


def test_a_line_beyond_a_mebibyte_is_refused_unread():
    assert reason_of(JAVA + "x" * MAX_BYTES) == "line too long"


def test_a_line_made_to_be_slow_is_read_in_linear_time():
    """A pattern with four places would try some ten to the sixteenth ways here."""
    text = "Preparing to rebalance group " + " in state  with old generation  (reason: " * 20_000 + ")."
    assert isinstance(events_of(JAVA + text), RejectedRow)


def test_a_line_of_the_coordinators_log_moves_no_clock():
    assert mute_line(telemetry(JAVA + "anything")) is None
    assert mute_line(telemetry("noise")) is not None


SHIPPED = {
    "from the file": f"[2023-11-14 22:13:20,250] INFO {JAVA}{{}} (org.apache.kafka.GroupMetadataManager)",
    "with an end of line": f"[2023-11-14 22:13:20,250] INFO {JAVA}{{}} (org.apache.kafka.coordinator.group.X)\n",
}


@pytest.mark.parametrize("form", SHIPPED)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_shipped_line_has_its_own_date_and_no_logger(form, wrapped):
    line = SHIPPED[form].format(f"Member {M1} in group g has failed, removing it from the group.")
    event = read(json.dumps({"message": line}) if wrapped else line, at_ms=T0 + 4_000)
    assert (event.order_ms, event.what, event.members) == (T0 + 250, "session-expired", (M1,))


def test_a_shipped_line_is_what_it_begins_as():
    """A client id may hold a whole line of the request log, and a group id one of the coordinator's."""
    forged = heartbeat_line(member="victim")
    text = f"Member {forged} in group g has failed, removing it from the group."
    event = read(f"[2023-11-14 22:13:20,250] INFO {JAVA}{text} (x.Y)")
    assert (type(event), event.members) == (CoordinatorLine, (forged,))
    event = read(f"[2023-11-14 22:13:20,250] DEBUG {heartbeat_line(group=JAVA + 'x')} (kafka.request.logger)")
    assert (type(event), event.group) == (Heartbeat, JAVA + "x")


values = st.text(max_size=12) | st.sampled_from(
    [" in group ", "] Member ", "has left group", "[", "], ", M1, "\n", "."]
)


@given(st.sampled_from([text for _, text in _TELLING]), st.lists(values, min_size=12, max_size=12), st.integers(-3, 3))
def test_junk_in_any_wording_never_raises(text, given_values, cut):
    for value in given_values:
        start, brace, rest = text.partition("{")
        text = start + value.replace("{", "") + rest.partition("}")[2] if brace else text
    line = JAVA + (text[:cut] if cut < 0 else text + "x" * (cut // 3))
    events = parse_row(telemetry(line))
    assert isinstance(events, list | RejectedRow)
    assert not getattr(events, "reason", "").startswith("failed")


@given(st.binary(max_size=60))
def test_any_bytes_behind_the_coordinator_s_name_never_raise(junk):
    events = parse_row(telemetry(b"[GroupCoordinator id=1] " + junk))
    assert events == [] or events.reason == UNKNOWN_WORDING
