"""Reads from a group's view which member owns which partition, and the other facts by which lag is judged."""

from collections.abc import Mapping
from typing import Any

from coordinator_model.group_report import GroupReport
from coordinator_model.lag.partition import GroupFacts, Owner
from coordinator_model.membership import Partition, held_by
from coordinator_model.states import GroupState, GroupType

Owners = Mapping[Partition, Owner]


def owners_of(view: Mapping[str, Any], at_ms: int, before: Owners) -> dict[Partition, Owner]:
    """Return the owner of each partition that has one.

    ``before``: the owners by the group's last view. An owner that keeps a partition keeps its ``since_ms``. A new owner
    counts as the owner since the group became stable, because earlier time does not count anyway. Members of a streams
    group own parts of its topology, not partitions.
    """
    if view["type"] == GroupType.STREAMS:
        return {}
    since_ms = view["stable_since_ms"] if view["state"] == GroupState.STABLE else None
    owners: dict[Partition, Owner] = {}
    for member in view["members"]:
        owner = owner_of(member, at_ms if since_ms is None else since_ms)
        for place in held_by(member):
            known = before.get(place)
            goes_on = known is not None and known.member_id == owner.member_id
            owners[place] = owner._replace(since_ms=known.since_ms) if known is not None and goes_on else owner
    return owners


def owner_of(member: Mapping[str, Any], since_ms: int) -> Owner:
    """Return a member of a view as an owner."""
    return Owner(
        member_id=member["member_id"],
        instance_id=member["instance_id"],
        client_id=member["client_id"],
        client_host=member["client_host"],
        liveness=member["liveness"],
        generation=-1 if member["generation"] is None else member["generation"],
        since_ms=since_ms,
        max_poll_interval_ms=member["max_poll_interval_ms"],
    )


def facts_of(report: GroupReport, view: Mapping[str, Any]) -> GroupFacts:
    """Return the facts about a group from a report and its view."""
    newest = max(view["members"], key=lambda member: member["joined_ms"] or 0, default=None)
    return GroupFacts(
        cluster=view["cluster"],
        group=view["group"],
        type=view["type"],
        state=view["state"],
        generation=view["generation"],
        incarnation=view["incarnation"],
        broker=view["coordinator"] or "",
        view_ms=report.at_ms,
        stable_since_ms=view["stable_since_ms"],
        reason=newest["rejoin_reason"] if newest is not None else None,
        shard=report.shard,
    )
