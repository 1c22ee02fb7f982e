"""How a GroupMetadata record relates to the generation that the replica has: which of the two continues the other."""

from collections.abc import Iterable
from typing import Any

from coordinator_model.client import on_host, who
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.states import GroupState


def count_if_lower(replica: GroupReplica, generation: int) -> None:
    """Count a recorded generation that is lower than the one before."""
    if not 0 <= generation < replica.generation:
        return
    if generation <= 1:
        replica.begin_again()  # its tombstone was compacted away
    else:
        replica.unexpected += 1  # generations only go up; the log is right


def restore_loaded(replica: GroupReplica, listed: Iterable[str]) -> None:
    """Restore members that had left and that a record of the same generation lists again.

    A deposed coordinator answered their leaves. The next one had loaded the log, which still had them, and started
    their sessions then.
    """
    for member_id in listed:
        if member_id not in replica.members and member_id in replica.recorded:
            replica.members[member_id] = replica.recorded[member_id]


def drop_found_gone(replica: GroupReplica, value: dict[str, Any], listed: set[str]) -> None:
    """Drop members that were already found gone when this record's generation was announced: no new removal.

    They came back into the replica because another broker was believed to have loaded the log, which still had them.
    But the record is that of the announced generation, because it has the instant of that announcement. So the
    coordinator that announced the generation wrote it.
    """
    announced_ms = value.get("currentStateTimestamp", -1)
    found = {who(d.member) for d in replica.departures if d.removed_ms == announced_ms}
    found |= {seen.client for seen in replica.known_violations if seen.at_ms == announced_ms}
    for member in [m for m in replica.members.values() if m.member_id not in listed and who(m) in found]:
        del replica.members[member.member_id]


def drop_replaced(replica: GroupReplica, successor: Member, item: dict[str, Any]) -> None:
    """Drop the removal of the static member that a listed one replaced: its session had not ended.

    The successor's own client id and host are known from its JoinGroup. If the record has the former member's instead,
    the successor replaced that member (``ClassicGroup.replaceStaticMember``). A successor that joins after the end of
    that session is recorded with its own.
    """
    own, listed = on_host(successor), (item["clientId"], item["clientHost"].removeprefix("/"))
    if own not in (("", ""), listed):
        replica.departures = [
            d
            for d in replica.departures
            if d.judged or d.successor != successor.member_id or on_host(d.member) != listed
        ]


def is_written_again(replica: GroupReplica, generation: int) -> bool:
    """Tell whether a record repeats the last one's generation: a static member was replaced in a stable group.

    The group may seem to be in a join phase by the answers of a deposed coordinator.
    """
    was_stable = replica.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
    return was_stable and generation == replica.generation and replica.recorded_generation in (None, generation)


def writer_had_loaded(replica: GroupReplica, value: dict[str, Any]) -> bool:
    """Tell whether the coordinator that wrote a record had loaded the log since a generation was announced.

    It did not find the announced generation in the log. That shows in two ways: the record's generation is lower than
    the announced one, or it is the same but the record lacks members that had joined the announced one.
    """
    generation, recorded = value["generation"], replica.recorded_generation
    if recorded is None or not recorded <= generation <= replica.generation:
        return False
    listed = {item["memberId"] for item in value["members"]}
    instances = {item.get("groupInstanceId") for item in value["members"]} - {None}
    joined = [member for member in replica.members.values() if member.generation == generation > recorded]
    lacking = [member for member in joined if member.member_id not in listed and member.instance_id not in instances]
    return generation < replica.generation or bool(lacking)


def revert_to_loaded(replica: GroupReplica, value: dict[str, Any], at_ms: int) -> None:
    """Revert to the last record, which the coordinator that wrote this one has loaded.

    If this record has the same generation, it has the same instant, too: that of the announcement. A coordinator that
    loads a group takes the instant from the log (``GroupMetadataManager.replay``, ``currentStateTimestamp``).
    """
    replica.revert_to_last_record(at_ms)
    announced_ms = value.get("currentStateTimestamp", -1)
    if value["generation"] == replica.generation and announced_ms > 0:
        replica.generation_since_ms = min(announced_ms, at_ms)


def was_written_by_another(replica: GroupReplica, broker: str, context: JudgementContext) -> bool:
    """Tell whether another broker has announced and written the generation since the coordinator loaded the group.

    Then the coordinator is deposed, though nobody has said so: metadata still names it. It knows an earlier generation.
    """
    elsewhere = replica.is_announced_elsewhere(broker) and replica.recorded_generation is None
    loads = (reset for reset in context.timer_resets if reset.may_load)
    since = (r for r in loads if r.high_ms is None or r.high_ms > replica.generation_since_ms)
    return broker == context.broker and elsewhere and next(since, None) is None
