"""Whether the next record agrees with the replica: if it does not, the monitor was wrong and reports that."""

from typing import Any, NamedTuple

from coordinator_model.decode.records import RecordType
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.member import Member
from coordinator_model.replica.notes import Divergence
from coordinator_model.states import GroupState

MAX_NAMED = 8

Facts = dict[str, Any]
"""Facts by name; None: not known."""


class Expected(NamedTuple):
    """What the record of the generation in its sync phase must say."""

    group: Facts
    members: dict[str, Facts]


def expected(replica: GroupReplica, event: object) -> Expected | None:
    """Return what a record must say of the generation in its sync phase; None: that is not known.

    It is known once the leader's list was seen: no member can come or go before the record without another generation.
    """
    value = getattr(event, "value", None)
    if value is None or getattr(event, "record_type", None) != RecordType.GROUP_METADATA:
        return None
    syncing = replica.state is GroupState.COMPLETING_REBALANCE
    if not syncing or not value["generation"] == replica.generation == replica.listed_generation:
        return None
    return _says(replica)


def note(replica: GroupReplica, was: Expected | None, at_ms: int) -> None:
    """Compare what was expected with what the record made of the replica."""
    if was is None:
        return
    now = _says(replica)
    both = sorted(was.members.keys() & now.members.keys())
    different = _different("", was.group, now.group)
    different += [text for name in both for text in _different(f"{name}: ", was.members[name], now.members[name])]
    _tell(replica, at_ms, sorted(was.members.keys() - now.members), sorted(now.members.keys() - was.members), different)


def note_assignment(replica: GroupReplica, member: Member, at_ms: int) -> None:
    """Note an answered assignment that differs from that of the generation's record, if the record was read first."""
    if replica.recorded_generation is None and replica.state is GroupState.STABLE:
        _tell(replica, at_ms, [], [], [f"{member.member_id}: assignment, answered another than recorded"])


def _tell(replica: GroupReplica, at_ms: int, ours: list[str], theirs: list[str], different: list[str]) -> None:
    if ours or theirs or different:
        replica.unexpected += 1
        cut = [names[:MAX_NAMED] for names in (ours, theirs, different)]
        replica.diverged = Divergence(at_ms, replica.generation, *cut)


def _says(replica: GroupReplica) -> Expected:
    """Return what JoinGroup answers and a record both show. The assignment is decided only in between."""
    return Expected(
        {"leader": replica.leader, "protocol": replica.protocol},
        {
            member.member_id: {
                "instance": member.instance_id,
                "session timeout": member.session_timeout_ms,
                "rebalance timeout": member.rebalance_timeout_ms,
            }
            for member in replica.members.values()
        },
    )


def _different(who: str, was: Facts, now: Facts) -> list[str]:
    return [
        f"{who}{name} {now[name]}, expected {fact}"
        for name, fact in was.items()
        if fact is not None and fact != now[name]
    ]
