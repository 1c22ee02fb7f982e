"""A group id changes its kind in one write: nobody is accused for it, no incident ends by it, all stay who they are."""

from itertools import pairwise

import pytest

from coordinator_model.capture_replay import _read, _transitions
from coordinator_model.group_report import read_outputs
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.support.records import key
from tests.support.story import T0, Story, Who, consumers, rebalance, stable

SESSION = {"consumer_session_timeouts_ms": {"": 6_000}}
NEW = Who("new", client_id="client-new", port=5_050)


def play(story, until):
    return story.play(until, **SESSION)


def upgrade(story, at_ms, epoch, *members, joiner=NEW):
    """Write what the coordinator writes when `joiner` sends the first KIP-848 heartbeat to a classic group."""
    story.deleted(at_ms)
    for who in members:
        story.member(at_ms, who, classic_session_ms=9_000)
    story.epoch(at_ms, epoch).target(at_ms, epoch)
    for who in members:
        story.current(at_ms, who, epoch, partitions=story.know(who)[0].partitions)
    story.member(at_ms, joiner).epoch(at_ms, epoch + 1).target(at_ms, epoch + 1)
    for who in (*members, joiner):
        known = story.know(who)[0]
        story.current(at_ms + 100, known.member_id, epoch + 1, partitions=known.partitions)
    return story


def downgrade(story, at_ms, epoch, *members, last="new", stays=False):
    """Write what the coordinator writes when `last`, the last KIP-848 member, goes or `stays` as a classic one."""
    for type_ in (8, 7):
        for who in (*members, last):
            story.write(at_ms, key(type_, story.group, who), None)
    story.target(at_ms, None)
    for who in (*members, last):
        story.write(at_ms, key(5, story.group, who), None)
    return story.epoch(at_ms, None).record(at_ms, epoch, *members, *([last] if stays else []))


def two_classic_members():
    return stable("m1", "m2").beats("m1", 1_000, 20_000).beats("m2", 1_000, 20_000)


def test_an_upgrade_accuses_nobody_and_keeps_the_classic_members_own_timeouts():
    told = play(upgrade(two_classic_members(), 5_500, 1, "m1", "m2"), 20_000)
    assert told.accusations == []
    assert (told.group["type"], set(told.members)) == ("consumer", {"m1", "m2", "new"})
    assert [told.members[m]["session_timeout_ms"] for m in ("m1", "m2", "new")] == [9_000, 9_000, 6_000]


def test_a_member_goes_through_an_upgrade_as_who_it_was():
    before = play(two_classic_members(), 5_400).members["m1"]
    after = play(upgrade(two_classic_members(), 5_500, 1, "m1", "m2"), 5_600).members["m1"]
    for known in ("joined_ms", "connection", "client_software", "last_heartbeat_ms", "liveness"):
        assert after[known] == before[known], known


def test_whom_an_upgrade_does_not_name_was_no_member():
    """The coordinator writes every member it has; a ghost that only we still had goes without a word."""
    assert set(play(upgrade(two_classic_members(), 5_500, 1, "m1"), 6_000).members) == {"m1", "new"}


@pytest.mark.parametrize(("upgraded_ms", "told"), [(8_900, []), (9_100, [("m3", 9_000, "session-timeout")])])
def test_whose_session_ended_just_before_an_upgrade_is_told(upgraded_ms, told):
    """Its removal began a rebalance, which the upgrade ended before anything was written (seen on a real broker)."""
    story = stable("m1", "m2", "m3").beats("m1", 1_000, 20_000).beats("m2", 1_000, 20_000).beats("m3", 1_000, 3_000)
    after = play(upgrade(story, upgraded_ms, 1, "m1", "m2"), 30_000)
    assert after.facts("session-expired", "subject", "deadline_ms", "cause") == told
    assert after.accusations == [("session-expired", subject) for subject, *_ in told]


def test_an_upgrade_in_a_join_phase_is_not_dated_by_the_generation_before_it():
    """The end of m3's session begins the phase at 9,000, which may last until 19,000. The upgrade ends it at 12,000.

    The first JoinGroup of generation 1 was more than one rebalance timeout ago by then. It began another phase.
    """
    story = stable("m1", "m2", "m3", poll_ms=10_000).beats("m3", 1_000, 3_000)
    for who in ("m1", "m2"):
        story.beats(who, 1_000, 8_000).beats(who, 9_100, 20_000, error=27)
    told = play(upgrade(story, 12_000, 1, "m1", "m2"), 30_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("m3", 9_000)]
    assert told.accusations == [("session-expired", "m3")]


def test_whose_session_ended_as_the_coordinator_woke_just_before_an_upgrade_is_told():
    """Lines come before the probe shows that the coordinator was paused, and the upgrade names m3 no more."""
    story = stable("m1", "m2", "m3").beats("m1", 1_000, 8_000).beats("m2", 1_000, 8_000).beats("m3", 1_000, 3_000)
    upgrade(story, 14_401, 1, "m1", "m2").beats("m1", 14_420, 30_000).beats("m2", 14_430, 30_000)
    told = play(story.silent(8_000, 14_400), 30_000)
    assert told.facts("session-expired", "subject", "cause") == [("m3", "coordinator-pause")]
    assert told.accusations == [("session-expired", "m3")]


def test_whose_session_ended_at_a_coordinator_named_just_before_an_upgrade_is_told():
    """broker-2 loads the group at 3,000, and m3's session ends there at 9,000. broker-1 answers until 6,000.

    Metadata names broker-2 at 8,500. The upgrade does not name m3.
    """
    story = stable("m1", "m2", "m3").leads(0, "broker-1")
    story.brokers["broker-2"] = 0
    for who, until_ms in (("m1", 6_000), ("m2", 6_000), ("m3", 5_000)):
        story.beats(who, 1_000, until_ms)
    upgrade(story.leads(8_500, "broker-2"), 10_000, 1, "m1", "m2")
    story.beats("m1", 10_200, 20_000, broker="broker-2").beats("m2", 10_200, 20_000, broker="broker-2")
    story.beat(10_500, "m3", error=25, broker="broker-2")
    assert play(story, 20_000).accusations == [("session-expired", "m3")]


def expired(then):
    """m3 of a classic group of three expires at 9,000 and the incident is open when the group changes its kind."""
    story = stable("m1", "m2", "m3", partitions=2)
    story.beats("m1", 1_000, 8_000).beats("m2", 1_000, 8_000).beats("m3", 1_000, 3_000)
    story.beat(9_100, "m1", 1, 27).beat(9_100, "m2", 1, 27).join(9_300, "m1", 2, listed=("m1", "m2")).join(
        9_300, "m2", 2
    )
    took_over = Who("m1", client_id="client-m1", port=5_000, partitions=(0, 1, 4, 5))
    story.record(9_340, 2, took_over, "m2").sync(9_350, "m1", 2, leader=True).sync(9_350, "m2", 2)
    return then(story.beats("m1", 10_000, 90_000, 2).beats("m2", 10_000, 90_000, 2))


def test_an_upgrade_ends_no_incident():
    told = play(expired(lambda story: upgrade(story, 15_000, 2, "m1", "m2")), 90_000)
    assert told.accusations == [("session-expired", "m3")]
    assert [reason for reason, _ in told.closed("session-expired")] == ["recovered"]
    assert {t["severity"] for t in told.transitions if t["rule"] == "session-expired"} == {"warn"}


def test_a_downgrade_ends_no_incident():
    def happens(story):
        upgrade(story, 15_000, 2, "m1", "m2").hellos("new", 16_000, 20_000, 3)
        story.hello(20_400, "new", -1, -1)
        downgrade(story, 20_405, 4, "m1", "m2").beat(21_000, "m1", 4, 27).beat(21_000, "m2", 4, 27)
        return story.join(21_100, "m1", 5, listed=("m1", "m2")).join(21_100, "m2", 5).record(21_140, 5, "m1", "m2")

    told = play(expired(happens), 90_000)
    assert told.accusations == [("session-expired", "m3")]
    assert [reason for reason, _ in told.closed("session-expired")] == ["recovered"]
    assert {t["severity"] for t in told.transitions if t["rule"] == "session-expired"} == {"warn"}
    assert (told.group["type"], told.group["generation"], set(told.members)) == ("classic", 5, {"m1", "m2"})


def test_a_downgrade_begins_a_join_phase():
    """In the same write (``GroupMetadataManager.convertToClassicGroup``); who never rejoins is dropped in its time."""
    story = downgrade(upgrade(two_classic_members(), 5_500, 1, "m1", "m2"), 9_000, 3, "m1", "m2")
    assert play(story, 9_100).group["state"] == "PreparingRebalance"


def downgraded(**how):
    story = consumers("new").member(200, "m1", classic_session_ms=9_000).current(210, "m1", 2)
    story.beats("m1", 1_000, 9_000, 2).hellos("new", 1_000, 3_000, 2)
    return downgrade(story, how["at_ms"], 3, "m1").beats("m1", how["at_ms"] + 500, 20_000, 3)


def test_a_member_whose_leave_downgrades_the_group_is_nobodys_incident():
    story = downgraded(at_ms=3_505).hello(3_500, "new", -1, -1)
    assert play(story, 20_000).accusations == []


def test_a_member_whose_expiry_downgrades_the_group_is_told():
    told = play(downgraded(at_ms=9_004), 20_000)
    assert told.facts("session-expired", "subject", "deadline_ms") == [("new", 9_000)]
    assert set(told.members) == {"m1"}


def test_a_deposed_coordinator_lets_no_consumer_into_a_group_that_is_classic():
    """Another coordinator let the session of new end at 9,000. A classic group answers 69 to a KIP-848 heartbeat.

    The upgrade at 13,000 does not name new, which is nobody's removal.
    """
    story = consumers("new").member(200, "m1", classic_session_ms=9_000).current(210, "m1", 2)
    story.beats("m1", 1_000, 12_000, 2).hellos("new", 1_000, 3_000, 2)
    downgrade(story, 9_004, 2, "m1").hellos("new", 9_500, 12_500, 2)
    assert set(play(story, 12_900).members) == {"m1"}
    upgrade(story, 13_000, 2, "m1", joiner=Who("other", client_id="client-other", port=5_060))
    assert play(story, 20_000).accusations == [("session-expired", "new")]


def test_an_expiry_that_downgrades_a_group_upgraded_at_once_is_told():
    """All has one instant, as where the coordinator wakes from a pause: a replacement would not have downgraded it."""
    static = Who("new", instance_id="pod-1", client_id="client-new", port=5_050)
    story = upgrade(two_classic_members(), 5_500, 1, "m1", "m2", joiner=static).hello(5_600, "new", 0, 2)
    story.hello(6_700, "new", 2, 2)
    story = upgrade(downgrade(story, 12_700, 2, "m1", "m2"), 12_700, 2, "m1", "m2", joiner=static)
    assert play(story, 20_000).facts("session-expired", "subject", "deadline_ms") == [("pod-1", 12_700)]


def test_a_static_successor_whose_join_downgrades_the_group_replaced_its_predecessor():
    """broker-2 coordinates since 5,000. The brokers' session timeout, as long as pod-1 has been away, is not known."""
    old = Who("old", instance_id="pod-1", client_id="client-old", port=5_050)
    new = Who("new", instance_id="pod-1", client_id="client-new", port=5_051)
    story = consumers(old).member(200, "m1", classic_session_ms=9_000).current(210, "m1", 2).leads(0, "broker-1")
    story.brokers["broker-2"] = 0
    story.beats("m1", 1_000, 4_000, 2).hellos("old", 1_000, 3_000, 2).current(3_500, "old", -2)
    story.hello(3_500, "old", -2, -2).leads(5_000, "broker-2", 9_000)
    story.gone(9_996, "old").member(9_996, new).current(9_996, "new", 0).member(9_996, new, classic_session_ms=9_000)
    downgrade(story.current(9_996, "new", 2), 9_996, 2, "m1", stays=True)
    story.join(10_000, new, 2, asked="", parked_ms=5, broker="broker-2")
    story.sync(10_010, "new", 2, broker="broker-2").beats("m1", 10_100, 20_000, 2, broker="broker-2")
    story.beats("new", 10_500, 20_000, 2, broker="broker-2")
    assert story.play(20_000).accusations == []


def test_a_member_goes_through_a_downgrade_as_who_it_was():
    after = play(downgraded(at_ms=3_505).hello(3_500, "new", -1, -1), 3_600).members["m1"]
    assert (after["last_heartbeat_ms"], after["joined_ms"]) == (T0 + 3_000, T0 + 200)


def test_an_empty_classic_group_that_becomes_a_consumer_group_is_the_same_group():
    """Generation 40 is followed by epoch 2: the id has only changed its kind, so who was lost before can come back."""
    story = Story().record(100, 40, "m1").beats("m1", 1_000, 3_000, 40).record(9_002, 41)
    story.deleted(12_000).member(12_000, "m1").epoch(12_000, 2).target(12_000, 2).current(12_000, "m1", 2)
    story.hello(12_001, "m1", 0, 2).hellos("m1", 13_000, 20_000, 2)
    told = play(story, 20_000)
    assert [reason for reason, _ in told.closed("session-expired")] == ["rejoined"]
    assert (told.group["type"], told.group["incarnation"]) == ("consumer", 0)


def told_in_batches(events, settings, *cuts):
    """What a shard tells of events that come in batches cut at these places, with a restart at each."""
    outputs, state = [], None
    for start, end in pairwise((0, *cuts, len(events))):
        shard = Shard.restore(0, settings, state)
        outputs += shard.apply(events[start:end], final=end == len(events))
        state = shard.dump()
    transitions = _transitions(read_outputs({**output, "seq": n} for n, output in enumerate(outputs)), settings)
    return [(t.kind, t.incident.rule, t.incident.subject, t.incident.reason, t.at_ms) for t in transitions]


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_batch_that_ends_within_the_write_changes_nothing(cut):
    """The rows of a write may come in two batches: the first then ends with tombstones, and waits."""
    rows = expired(lambda story: upgrade(story, 15_000, 2, "m1", "m2")).source_rows(90_000)
    events = sorted(_read(rows).events)
    start = next(n for n, event in enumerate(events) if event.order_ms == T0 + 15_000)
    settings = ShardSettings(cluster="c", partitions=1, live_from_ms=T0, view_refresh_ms=0, **SESSION)
    assert told_in_batches(events, settings, start + cut) == told_in_batches(events, settings)


def test_an_empty_consumer_group_that_becomes_a_classic_group_is_the_same_group():
    story = consumers("m1").hellos("m1", 1_000, 3_000, 2).gone(9_004, "m1").epoch(9_004, 3)
    story.target(12_000, None).epoch(12_000, None).record(12_000, 0).join(12_300, "m1", 1, listed=("m1",))
    story.record(12_340, 1, "m1").sync(12_350, "m1", 1, leader=True).beats("m1", 13_000, 20_000)
    told = play(story, 20_000)
    assert [reason for reason, _ in told.closed("session-expired")] == ["rejoined"]
    assert (told.group["type"], told.group["incarnation"]) == ("classic", 0)


def test_a_tombstone_that_nothing_follows_deletes_the_group_and_ends_its_incidents():
    story = stable("m1").beats("m1", 1_000, 3_000).record(9_010, 2).deleted(11_000)
    told = play(story, 12_000)
    assert told.history.groups == []
    assert [reason for reason, _ in told.closed("session-expired")] == ["group-deleted"]


def test_a_group_deleted_and_made_anew_is_another_one():
    story = stable("m1").record(9_010, 2).deleted(11_000).record(12_000, 1, "m1")
    assert play(story, 12_500).group["incarnation"] == 1


def test_rebalances_of_a_deleted_group_do_not_count_for_the_next_one_with_its_id():
    story = stable("m1")
    for generation in range(2, 8):
        rebalance(story, generation * 10_000, generation, "m1")
    story.record(80_000, 8).deleted(90_000).record(100_000, 1, "m1")
    rebalance(story, 110_000, 2, "m1")
    told = play(story, 120_000)
    opened = told.facts("rebalance-storm", "at_ms")
    assert opened
    assert all(at_ms < 80_000 for (at_ms,) in opened)


# ------------------------------------------------------------------------------------------------ timers


def ended(told, member):
    """When the session of a member ended, by its incident."""
    return [
        deadline_ms for who, deadline_ms in told.facts("session-expired", "subject", "deadline_ms") if who == member
    ]


def test_an_upgrade_starts_the_sessions_of_its_classic_members_anew():
    """`GroupMetadataManager.convertToConsumerGroup`: m2, silent since 3,000, has its 9 s from 5,500 on."""
    story = stable("m1", "m2").beats("m1", 1_000, 20_000).beats("m2", 1_000, 3_000)
    upgrade(story, 5_500, 1, "m1", "m2").hellos("new", 6_000, 20_000, 2)
    told = play(story.gone(14_503, "m2").epoch(14_503, 3).target(14_503, 3), 20_000)
    assert ended(told, "m2") == [14_500]


def test_a_downgrade_starts_the_sessions_of_its_classic_members_anew():
    """`GroupMetadataManager.convertToClassicGroup`: m2, silent since 3,000, has its 6 s from 5,505 on."""
    story = consumers("new").member(200, "m1", classic_session_ms=6_000).current(210, "m1", 2)
    story.member(200, "m2", classic_session_ms=6_000).current(210, "m2", 2).hellos("new", 1_000, 5_000, 2)
    story.beats("m1", 1_000, 20_000, 2).beats("m2", 1_000, 3_000, 2).hello(5_500, "new", -1, -1)
    downgrade(story, 5_505, 3, "m1", "m2").join(12_000, "m1", 4, listed=["m1"], parked_ms=400)
    [deadline_ms] = ended(play(story, 14_000), "m2")
    assert 11_505 <= deadline_ms <= 11_600


def among_consumers(*, last_beat_ms):
    """A group of KIP-848 with m1, a classic member with a session of 9 s, silent after an instant."""
    story = consumers("new").member(200, "m1", classic_session_ms=9_000).current(210, "m1", 2)
    return story.hellos("new", 1_000, 30_000, 2).beats("m1", 1_000, last_beat_ms, 2)


def removed(story, at_ms, epoch=3):
    return story.gone(at_ms, "m1").epoch(at_ms, epoch).target(at_ms, epoch)


def test_a_join_into_a_group_of_consumers_starts_its_members_session_anew():
    """Also at the epoch it is at already: the timer is started as the answer goes out."""
    story = among_consumers(last_beat_ms=4_000).join(6_000, "m1", 2)
    assert ended(play(removed(story, 12_004), 17_000), "m1") == [12_000]


def test_a_load_gives_a_classic_member_the_groups_session_timeout():
    """In a consumer group it has 6 s, not its own 9, until it is heard (`GroupMetadataManager.onLoaded`)."""
    story = among_consumers(last_beat_ms=4_000).beat(5_000, "m1", 2, error=16)
    story.hello(5_200, "new", 2, 2, broker="broker-2")
    for at_ms in range(6_000, 20_000, 1_000):
        story.hello(at_ms, "new", 2, 2, broker="broker-2")
    [deadline_ms] = ended(play(removed(story, 11_205), 17_000), "m1")
    assert abs(deadline_ms - 11_200) <= 200


# when m1 is removed: broker-2 accepts its heartbeat at 5,500, and had loaded the group by then or loads it until 6,500
@pytest.mark.parametrize(("gone_ms", "deadline_ms"), [(14_503, 14_500), (12_003, 12_003)])
def test_a_classic_member_heard_as_its_group_may_be_loading_goes_by_either_timeout(gone_ms, deadline_ms):
    """If the group was loaded, the heartbeat began its own 9 s. If not, the load gave it the group's 6 s."""
    story = among_consumers(last_beat_ms=4_000).beat(5_000, "m1", 2, error=16)
    story.beat(5_500, "m1", 2, broker="broker-2").hellos("new", 6_500, 20_500, 2, broker="broker-2")
    assert ended(play(removed(story, gone_ms), 20_500), "m1") == [deadline_ms]


# what a classic member of a group of KIP-848 with a rebalance timeout of 60 s does -> what its removal is told as
OWES = {
    "told to rejoin, it never does": (
        lambda s: s.beats("m1", 5_000, 64_000, 2, error=27),
        65_003,
        "rebalance-timeout",
        65_000,
    ),
    "told to rejoin as it syncs, it never does": (
        lambda s: s.sync(5_000, "m1", 2, error=27, parked_ms=0).beats("m1", 6_000, 64_000, 2, error=27),
        65_003,
        "rebalance-timeout",
        65_000,
    ),
    "it joins, and never syncs": (
        lambda s: s.beat(5_000, "m1", 2, error=27).join(6_000, "m1", 2).beats("m1", 7_000, 65_000, 2),
        66_003,
        "rebalance-timeout",
        66_000,
    ),
    "it joins and syncs, and is silent": (
        lambda s: s.beat(5_000, "m1", 2, error=27).join(6_000, "m1", 2).sync(6_010, "m1", 2),
        12_012,
        "session-expired",
        12_010,
    ),
    "it rejoins when told, and falls silent before it has synced": (
        lambda s: s.beat(5_000, "m1", 2, error=27).join(6_000, "m1", 2),
        12_003,
        "session-expired",
        12_000,
    ),
}


@pytest.mark.parametrize("name", OWES)
def test_a_classic_member_of_a_group_of_consumers_that_owes_a_join_or_a_sync(name):
    """It has a timer of its own for either; the group has no join phase (`GroupMetadataManager`, 2681 and 7965)."""
    happens, removed_ms, rule, deadline_ms = OWES[name]
    story = among_consumers(last_beat_ms=4_000).hellos("new", 31_000, 70_000, 2)
    told = play(removed(happens(story), removed_ms), 72_000)
    assert told.accusations == [(rule, "m1")]
    assert told.facts(rule, "deadline_ms") == [(deadline_ms,)]


def test_a_syncgroup_that_an_upgrade_cut_off_starts_no_timer():
    """It came to the classic group at 2,002. The group of KIP-848 first tells m1 to rejoin at 6,000."""
    story = stable("m1", "m2").join(2_000, "m2", 2, listed=("m2", "m1")).join(2_000, "m1", 2)
    story.beats("m1", 3_000, 5_000, 2).beats("m2", 3_000, 70_000, 2)
    upgrade(story, 5_500, 2, "m1", "m2").sync(5_502, "m1", 2, error=27, parked_ms=3_500)
    story.hellos("new", 5_503, 70_000, 3).beats("m1", 6_000, 65_000, 2, error=27)
    told = play(removed(story, 66_003, 4), 70_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m1", 66_000)]
    assert told.accusations == [("rebalance-timeout", "m1")]


# what a classic member of a group of KIP-848 with a session of 90 s heard behind a stalled write, and was told after
# it -> when it is removed, and the deadline that this breaks
MAY_OWE = {
    "its last heartbeat may have been told to rejoin": (lambda s: s, 65_003, 65_000),
    "so may two, of which the first was": (
        lambda s: s.beat(14_000, "m1", 2, error=15, parked_ms=5_000),
        65_003,
        65_000,
    ),
    "so may two, of which the second was": (
        lambda s: s.beat(14_000, "m1", 2, error=15, parked_ms=5_000),
        69_003,
        69_000,
    ),
    "it is told so only later": (lambda s: s.beat(15_000, "m1", 2, error=27), 75_003, 75_000),
}


@pytest.mark.parametrize("name", MAY_OWE)
def test_a_heartbeat_behind_a_stalled_write_may_have_been_told_to_rejoin(name):
    happens, removed_ms, deadline_ms = MAY_OWE[name]
    story = consumers("new").member(200, "m1", classic_session_ms=90_000).current(210, "m1", 2)
    story.hellos("new", 1_000, 80_000, 2).beats("m1", 1_000, 4_000, 2).beat(10_000, "m1", 2, error=15, parked_ms=5_000)
    told = play(removed(happens(story), removed_ms), 82_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m1", deadline_ms)]
    assert told.accusations == [("rebalance-timeout", "m1")]


# when a classic member is told to rejoin, around the downgrade of 11,000 -> when the group is upgraded again, when the
# member's timer runs out, and whether that is told
AGAIN = {
    "before its timer runs out": (lambda s: s.beat(5_000, "m1", 2, error=27), 25_000, 65_000, True),
    "after its timer has run out, in vain": (lambda s: s.beat(5_000, "m1", 2, error=27), 66_000, 65_000, False),
    "told in the millisecond of the downgrade": (lambda s: s.beat(11_000, "m1", 2, error=27), 25_000, 71_000, True),
    "told before it, by a line that came after it": (
        lambda s: s.beat(11_200, "m1", 2, error=27, parked_ms=300),
        25_000,
        70_900,
        True,
    ),
    "told after it, by the classic group": (lambda s: s.beat(11_000, "m1", 3, error=27), 25_000, 71_000, False),
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_timer_of_before_a_downgrade_runs_on_in_the_next_group_of_consumers(name):
    """Nobody cancels it, and a classic group takes no notice of it."""
    happens, upgraded_ms, deadline_ms, told = AGAIN[name]
    story = consumers("new").member(200, "m1", classic_session_ms=90_000).current(210, "m1", 2)
    story = happens(story.hellos("new", 1_000, 10_000, 2).beats("m1", 1_000, 4_000, 2))
    downgrade(story, 11_000, 3, "m1").deleted(upgraded_ms).member(upgraded_ms, "m1", classic_session_ms=90_000)
    story.epoch(upgraded_ms, 4).target(upgraded_ms, 4).current(upgraded_ms, "m1", 4).member(upgraded_ms, "new")
    story.current(upgraded_ms, "new", 4).hellos("new", upgraded_ms + 500, 90_000, 4)
    removed_ms = max(upgraded_ms + 1_000, deadline_ms + 3)
    ended_by = play(removed(story, removed_ms, 5), 90_000).facts("rebalance-timeout", "subject", "deadline_ms")
    assert [each for each in ended_by if each[1] <= deadline_ms] == ([("m1", deadline_ms)] if told else [])


# what ends m1 while its group is classic
GOES = {
    "its session ends": lambda s: s.record(17_003, 4),
    "it leaves": lambda s: s.leave(14_000, "m1").record(14_000, 4),
}


@pytest.mark.parametrize("name", GOES)
def test_a_timer_of_before_a_downgrade_removes_who_comes_back_with_its_id(name):
    """m1, told to rejoin at 5,000, has 60 s. It comes back at 58,600, and its write stalls, so no session begins."""
    story = consumers("new").member(200, "m1", classic_session_ms=6_000).current(210, "m1", 2)
    story.hellos("new", 1_000, 10_000, 2).beats("m1", 1_000, 4_000, 2).beats("m1", 5_000, 10_000, 2, error=27)
    story = GOES[name](downgrade(story, 11_000, 3, "m1"))
    story.deleted(25_000).member(25_000, "new").epoch(25_000, 5).target(25_000, 5).current(25_000, "new", 5)
    story.hellos("new", 26_000, 57_000, 5).member(58_600, "m1", classic_session_ms=6_000).current(58_600, "m1", 6)
    story.epoch(58_600, 6).target(58_600, 6).hello(63_700, "new", 5, 0, error=15, parked_ms=5_000)
    story.hellos("new", 64_000, 70_000, 7)
    told = play(removed(story, 65_003, 7), 72_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m1", 65_000)]


# whether m1's heartbeat waits behind a stalled write as m1 is removed -> when its session is said to have ended
LEFT_RUNNING = {"it waits, so m1 has not left": (True, [("m1", 23_500)]), "m1 may have left": (False, [])}


@pytest.mark.parametrize("name", LEFT_RUNNING)
def test_a_session_timer_that_a_downgrade_left_running_is_tried_again(name):
    """It ran at 18,000, in a classic group. Its write times out, and it runs again in the next group of consumers."""
    waits, told = LEFT_RUNNING[name]
    story = consumers("new").member(200, "m1", classic_session_ms=10_000).current(210, "m1", 2)
    story.hellos("new", 1_000, 8_000, 2).hello(9_000, "new", -1, -1).beats("m1", 1_000, 8_000, 2)
    rebalance(downgrade(story, 9_000, 3, "m1"), 10_000, 4, "m1").beats("m1", 11_000, 15_000, 4)
    story.beat(21_000, "m1", 4, error=15, parked_ms=5_000).deleted(22_000).epoch(22_000, 5).target(22_000, 5)
    for member, session_ms in (("m1", 10_000), ("next", None)):
        story.member(22_000, member, classic_session_ms=session_ms).current(22_000, member, 5)
    if waits:
        story.beat(26_500, "m1", 4, error=15, parked_ms=5_000)
    said = play(removed(story, 23_500, 6).hellos("next", 27_000, 30_000, 6), 30_000)
    assert said.opened("member-removed") == ["m1"]
    assert said.facts("session-expired", "subject", "deadline_ms") == told


def joined_before_a_downgrade(answered_ms=12_000):
    """m1's JoinGroup waits for a write from 7,000 on; the group becomes classic meanwhile."""
    story = consumers("new").member(200, "m1", classic_session_ms=90_000).current(210, "m1", 2)
    story.hellos("new", 1_000, 10_000, 2).beats("m1", 1_000, 4_000, 2)
    return downgrade(story, 11_000, 3, "m1").join(answered_ms, "m1", 2, parked_ms=answered_ms - 7_000)


def test_a_join_answered_after_a_downgrade_ends_no_join_phase():
    group = play(joined_before_a_downgrade(), 13_000).group
    assert (group["type"], group["state"], group["generation"]) == ("classic", "PreparingRebalance", 3)


@pytest.mark.parametrize("upgraded_ms", [11_400, 25_000])
def test_a_join_that_a_downgrade_overtook_has_a_timer_in_the_next_group_of_consumers(upgraded_ms):
    """Its sync timeout starts with the answer (`GroupMetadataManager.classicGroupJoinToConsumerGroup`)."""
    story = joined_before_a_downgrade(11_500).deleted(upgraded_ms).member(upgraded_ms, "m1", classic_session_ms=90_000)
    story.epoch(upgraded_ms, 4).target(upgraded_ms, 4).current(upgraded_ms, "m1", 4).member(upgraded_ms, "new")
    story.current(upgraded_ms, "new", 4).hellos("new", upgraded_ms + 500, 90_000, 4)
    told = play(removed(story, 71_503, 5), 90_000)
    assert told.facts("rebalance-timeout", "subject", "deadline_ms") == [("m1", 71_500)]


@pytest.mark.parametrize(("upgraded_ms", "told"), [(25_000, [("m1", 65_000)]), (66_000, [])])
def test_a_heartbeat_that_waits_over_a_downgrade_may_have_been_told_to_rejoin(upgraded_ms, told):
    """It comes at 5,000, is answered 15 behind a stalled write, and the group becomes classic at 9,000.

    Its timer of 60 s runs on. It removes m1 if the group is a KIP-848 group again by 65,000.
    """
    story = consumers("new").member(200, "m1", classic_session_ms=90_000).current(210, "m1", 2)
    story.hellos("new", 1_000, 6_000, 2).beats("m1", 1_000, 4_000, 2).beat(10_000, "m1", 2, error=15, parked_ms=5_000)
    downgrade(story, 9_000, 3, "m1").deleted(upgraded_ms).member(upgraded_ms, "m1", classic_session_ms=90_000)
    story.epoch(upgraded_ms, 4).target(upgraded_ms, 4).current(upgraded_ms, "m1", 4).member(upgraded_ms, "new")
    story.current(upgraded_ms, "new", 4).hellos("new", upgraded_ms + 500, 90_000, 4)
    removed_ms = max(upgraded_ms + 1_000, 65_003)
    ended_by = play(removed(story, removed_ms, 5), 90_000).facts("rebalance-timeout", "subject", "deadline_ms")
    assert [each for each in ended_by if each[1] <= 65_000] == told


def emptied(story):
    """Let "m1" leave a KIP-848 group, so that it is empty at 5,000."""
    return story.hellos("m1", 1_000, 4_000, 2).hello(5_000, "m1", -1, -1).gone(5_000, "m1").epoch(5_000, 3)


# what is answered to a classic JoinGroup, and what comes then -> the state of the group that was empty before
REFUSED = {
    "its member is unknown": (lambda s: s.join(6_000, "c", -1, error=25), "Dead"),
    "its session timeout is refused": (lambda s: s.join(6_000, "c", -1, error=26), "Empty"),
    "unknown, and then it creates the group": (lambda s: s.join(6_000, "c", -1, error=25).record(7_000, 0), "Empty"),
    "it was answered before the group was empty": (lambda s: s.join(4_500, "c", -1, error=25), "Empty"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_classic_join_removes_an_empty_consumer_group(name):
    happens, state = REFUSED[name]
    told = play(happens(emptied(consumers("m1"))), 9_000)
    assert (told.group["state"], told.accusations) == (state, [])


def test_a_leader_that_could_not_store_begins_no_join_phase_among_consumers():
    """A deposed coordinator made the group classic, and took a leader's assignment for the epoch of the next one."""
    story = consumers("m1").hellos("m1", 1_000, 20_000, 2).epoch(8_000, 3).target(8_000, 3).current(8_100, "m1", 3)
    told = play(
        story.hellos("m1", 8_200, 20_000, 3).sync(9_000, "m1", 3, leader=True, error=15, parked_ms=5_000), 20_000
    )
    assert told.group["state"] == "Stable"
