"""What random lives found, shrunk to the rows that showed it, with the coordinator's own answer."""

import base64

from tests.rows.witness import Witness
from tests.rows.world import T0_MS, Connection, World
from tests.support import records as encoder

TOPICS = encoder.subscription(["t"])
METADATA = base64.b64encode(TOPICS).decode()
HOST = "10.0.0.7"
LONG_MS, SESSION_MS = 60_000, 10_000


def member(member_id, instance_id=None):
    return encoder.ListedMember(member_id, instance_id, "c", f"/{HOST}", LONG_MS, SESSION_MS, TOPICS, b"")


class Script:
    """Rows one by one, each at an instant after T0."""

    def __init__(self, line_delay_ms=0):
        self.world, self.witness = World(line_delay_ms), Witness()

    def at(self, ms):
        self.world.run(T0_MS + ms - self.world.now_ms)
        return self

    def record(self, generation, leader, *members, since_ms):
        value = encoder.group_metadata("consumer", generation, "range", leader, T0_MS + since_ms, members)
        self.world.record(encoder.key(2, "g"), value)

    def join(self, member_id, generation, leader, *, instance=None, listed=(), parked_ms=0, version=9, asked=None):
        request = {
            "groupId": "g",
            "sessionTimeoutMs": SESSION_MS,
            "rebalanceTimeoutMs": LONG_MS,
            "memberId": member_id if asked is None else asked,
            "groupInstanceId": instance,
            "protocolType": "consumer",
            "protocols": [{"name": "range", "metadata": METADATA}],
        }
        response = {
            "errorCode": 0,
            "generationId": generation,
            "protocolType": "consumer",
            "protocolName": "range",
            "leader": leader,
            "memberId": member_id,
            "members": [{"memberId": m, "groupInstanceId": i, "metadata": METADATA} for m, i in listed],
        }
        self.answer("JOIN_GROUP", member_id, request, response, parked_ms, version)

    def refuse(self, member_id, *, instance, parked_ms, error=82):
        request = {
            "groupId": "g",
            "sessionTimeoutMs": SESSION_MS,
            "rebalanceTimeoutMs": LONG_MS,
            "memberId": "",
            "groupInstanceId": instance,
            "protocolType": "consumer",
            "protocols": [{"name": "range", "metadata": METADATA}],
        }
        response = {"errorCode": error, "generationId": -1, "leader": "", "memberId": member_id, "members": []}
        self.answer("JOIN_GROUP", member_id, request, response, parked_ms, 9)

    def sync(self, member_id, generation, *, leads=False, instance=None, parked_ms=0):
        sent = [{"memberId": member_id, "assignment": ""}] if leads else []
        request = {
            "groupId": "g",
            "generationId": generation,
            "memberId": member_id,
            "groupInstanceId": instance,
            "assignments": sent,
        }
        self.answer("SYNC_GROUP", member_id, request, {"errorCode": 0, "assignment": ""}, parked_ms)

    def heartbeat(self, member_id, generation, error=0):
        request = {"groupId": "g", "generationId": generation, "memberId": member_id, "groupInstanceId": None}
        self.answer("HEARTBEAT", member_id, request, {"errorCode": error}, 0)

    def answer(self, api, member_id, request, response, parked_ms, version=None):
        who = Connection("c", HOST, 5_000 + ord(member_id[-1]))
        self.world.answer(api, who, request, response, self.world.now_ms - parked_ms, version)

    def read(self, ms):
        self.at(ms)
        self.witness.feed(self.world.take())
        return self.witness.replica("g")

    def deadline_ms(self, member_id):
        return self.witness.deadline_ms("g", member_id) - T0_MS


def test_a_static_leader_back_by_joingroup_before_v9_still_leads():
    """It is told its former id, so that it does not think it leads; the record just before names the new one."""
    script = Script()
    script.at(100).join("i1-a", 1, "i1-a", instance="i1", listed=[("i1-a", "i1")])
    script.at(104).record(1, "i1-a", member("i1-a", "i1"), since_ms=100)
    script.sync("i1-a", 1, leads=True, instance="i1")
    script.at(2_000).record(1, "i1-b", member("i1-b", "i1"), since_ms=104)
    script.join("i1-b", 1, "i1-a", instance="i1", version=5, asked="")
    assert script.read(2_500).leader == "i1-b"


def test_a_rebalance_that_no_heartbeat_told_of_makes_the_group_stable_anew():
    """The leader rejoined, its record came before the joins' lines: a sync parked until then restarts a timer."""
    script = Script(line_delay_ms=40)
    script.at(100).join("a", 1, "a", listed=[("a", None), ("b", None)])
    script.join("b", 1, "a")
    script.at(104).record(1, "a", member("a"), member("b"), since_ms=100)
    script.sync("a", 1, leads=True)
    script.sync("b", 1, parked_ms=2)
    script.at(3_000).join("a", 2, "a", listed=[("a", None), ("b", None)])
    script.join("b", 2, "a")
    script.at(3_006).record(2, "a", member("a"), member("b"), since_ms=3_000)
    script.sync("a", 2, leads=True)
    script.sync("b", 2, parked_ms=3)
    assert script.read(3_540).stable_since_ms == T0_MS + 3_006
    assert script.deadline_ms("b") == 3_006 + SESSION_MS


def test_the_record_of_a_static_replacement_restarts_nobody_elses_session():
    """Its currentStateTimestamp is when the group became stable, which restarted only whom a parked sync waited for."""
    script = Script()
    script.at(100).join("i1-a", 1, "i1-a", instance="i1", listed=[("i1-a", "i1"), ("b", None)])
    script.join("b", 1, "i1-a")
    script.at(3_000).heartbeat("b", 1)
    script.at(9_000).record(1, "i1-a", member("i1-a", "i1"), member("b"), since_ms=100)
    script.sync("i1-a", 1, leads=True, instance="i1")
    script.at(9_100).sync("b", 1)  # answered from Stable: restarts nothing
    script.at(9_200).record(1, "i1-c", member("i1-c", "i1"), member("b"), since_ms=9_000)
    script.join("i1-c", 1, "i1-c", instance="i1", asked="")
    script.read(9_500)
    assert script.deadline_ms("b") == 3_000 + SESSION_MS
    assert script.deadline_ms("i1-c") == 9_200 + SESSION_MS


def test_a_group_that_empties_after_a_join_phase_is_not_judged_by_that_phase():
    """Nobody synced and all sessions ended: that the phase before began one rebalance timeout ago is chance."""
    script = Script()
    joined_ms = LONG_MS - SESSION_MS + 500
    script.at(joined_ms).join("a", 1, "a", listed=[("a", None)], parked_ms=LONG_MS - SESSION_MS)
    value = encoder.group_metadata("consumer", 2, None, None, T0_MS + joined_ms + SESSION_MS, [])
    script.at(joined_ms + SESSION_MS).world.record(encoder.key(2, "g"), value)
    script.read(joined_ms + SESSION_MS + 2_000)
    [told] = [t for t in script.witness.incidents() if t["transition"] == "opened"]
    assert (told["rule"], told["deadline_ms"]) == ("session-expired", T0_MS + joined_ms + SESSION_MS)


def test_a_generation_that_its_record_tells_first_began_when_the_record_says():
    """Answers take 40 ms to be sent: the leader's sync is in the log before its JoinGroup's line."""
    script = Script(line_delay_ms=40)
    script.at(100).join("a", 1, "a", listed=[("a", None), ("b", None)])
    script.join("b", 1, "a")
    script.at(104).record(1, "a", member("a"), member("b"), since_ms=100)
    script.sync("a", 1, leads=True)
    script.sync("b", 1, parked_ms=2)
    for at_ms in range(2_000, 65_000, 2_000):
        script.at(at_ms).heartbeat("b", 1, error=27 if at_ms > 5_000 else 0)
    script.at(65_000).join("a", 2, "a", listed=[("a", None)], parked_ms=60_000)
    script.at(65_007).record(2, "a", member("a"), since_ms=65_000)
    script.sync("a", 2, leads=True)
    script.read(67_000)
    [told] = [t for t in script.witness.incidents() if t["transition"] == "opened"]
    assert (told["rule"], told["deadline_ms"]) == ("rebalance-timeout", T0_MS + 65_000)


def of_a_static_and_a_dynamic_member(line_delay_ms=0):
    """i1-a, which leads, and b are stable from 104 on."""
    script = Script(line_delay_ms)
    script.at(100).join("i1-a", 1, "i1-a", instance="i1", listed=[("i1-a", "i1"), ("b", None)])
    script.join("b", 1, "i1-a")
    script.at(104).record(1, "i1-a", member("i1-a", "i1"), member("b"), since_ms=100)
    script.sync("i1-a", 1, leads=True, instance="i1")
    script.sync("b", 1, parked_ms=2)
    return script


def test_a_static_successor_whose_record_tells_first_came_when_the_generation_began():
    """i1-a expired at 10,104; b, silent since 5,000, is waited for until it expires too, and i1-c joins meanwhile."""
    script = of_a_static_and_a_dynamic_member(line_delay_ms=40)
    script.at(5_000).heartbeat("b", 1)
    script.at(15_000).join("i1-c", 2, "i1-c", instance="i1", listed=[("i1-c", "i1")], parked_ms=500, asked="")
    script.at(15_005).record(2, "i1-c", member("i1-c", "i1"), since_ms=15_000)
    script.sync("i1-c", 2, leads=True, instance="i1")
    script.read(17_000)
    told = [t for t in script.witness.incidents() if t["transition"] == "opened"]
    assert {(t["rule"], t["member_id"], t["deadline_ms"] - T0_MS) for t in told} == {
        ("session-expired", "i1-a", 10_104),
        ("session-expired", "b", 15_000),
    }


def replaced_in_turn(line_delay_ms=0):
    """i1-a and b are a group; i1-b came for i1-a's place at 5,000, waits in b's rebalance, and is fenced at 12,000."""
    script = of_a_static_and_a_dynamic_member(line_delay_ms)
    script.at(900).heartbeat("i1-a", 1)
    for at_ms in range(1_000, 12_000, 1_000):
        script.at(at_ms).heartbeat("b", 1, error=27 if at_ms > 3_000 else 0)
    script.at(12_000).refuse("i1-b", instance="i1", parked_ms=7_000)
    return script


def test_a_newcomer_fenced_before_its_answer_had_replaced_another():
    """i1-b took i1-a's place at 5,000 and waited; i1-c fenced it at 12,000, after i1-a's session would have ended."""
    script = replaced_in_turn()
    script.at(13_000).join("b", 2, "b", listed=[("b", None), ("i1-c", "i1")], parked_ms=900)
    script.join("i1-c", 2, "b", instance="i1", asked="", parked_ms=1_000)
    script.at(13_010).record(2, "b", member("b"), member("i1-c", "i1"), since_ms=13_000)
    script.sync("b", 2, leads=True)
    script.sync("i1-c", 2, instance="i1", parked_ms=5)
    assert set(script.read(15_000).members) == {"b", "i1-c"}
    assert script.witness.incidents() == []


def test_a_fenced_newcomer_had_replaced_another_before_the_record():
    """i1-b took i1-a's place at 5,000, i1-c fenced it at 12,000; lines come 40 ms late, and so after the record."""
    script = replaced_in_turn(line_delay_ms=40)
    script.at(12_008).join("b", 2, "b", listed=[("b", None), ("i1-c", "i1")], parked_ms=900)
    script.join("i1-c", 2, "b", instance="i1", asked="", parked_ms=8)
    script.at(12_012).record(2, "b", member("b"), member("i1-c", "i1"), since_ms=12_008)
    script.sync("b", 2, leads=True)
    script.sync("i1-c", 2, instance="i1", parked_ms=2)
    assert set(script.read(15_000).members) == {"b", "i1-c"}
    assert script.witness.incidents() == []
