"""The members of a group and their partitions, from a view, and what changed between two generations."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from coordinator_model.client import ShownClient, lasting_name

NAMES_KEPT = 100
"""How many members each list names at most. The totals beside the lists count all."""

Membership = dict[str, dict[str, Any]]
"""Member id -> ``client_id``, ``client_host``, ``instance_id``, ``partitions`` (pairs of topic and number)."""


Partition = tuple[str, int]
"""A topic (or topic id, or subtopology id) and a number."""


def held_by(member: Mapping[str, Any]) -> list[Partition]:
    """Return the partitions that a member of a view holds."""
    return [(a["topic"], number) for a in member.get("assignment") or () for number in a["partitions"]]


def partitions_of(assignment: Mapping[str, Iterable[int]]) -> list[Partition]:
    """Return the partitions of an assignment as the replica keeps it."""
    return [(topic, number) for topic, numbers in assignment.items() for number in numbers]


def unowned(wanted: Iterable[Partition], owned: Iterable[Partition]) -> list[Partition]:
    """Return the partitions that no member holds, sorted."""
    held = owned if isinstance(owned, AbstractSet) else set(owned)
    return sorted({place for place in wanted if place not in held})  # usually empty


def subscribed(topics_of_members: Iterable[Collection[str]]) -> set[str] | None:
    """Return the topics that members subscribe to; None: what a member subscribes to is not known."""
    named = [*topics_of_members]
    return {topic for topics in named for topic in topics} if all(named) else None


def wanted(places: Iterable[Partition], topics: Collection[str] | None) -> list[Partition]:
    """Return the partitions of subscribed topics. ``topics`` None: these are not known, so all partitions count."""
    return [place for place in places if topics is None or place[0] in topics]


def membership(view: Mapping[str, Any]) -> Membership:
    """Reduce a view to the members of the group and their partitions."""
    return {
        member["member_id"]: {
            "client_id": member.get("client_id"),
            "client_host": member.get("client_host"),
            "instance_id": member.get("instance_id"),
            "partitions": [list(partition) for partition in held_by(member)],
        }
        for member in view.get("members") or ()
    }


def compare(before: Membership | None, after: Membership) -> dict[str, Any]:
    """Return who joined, left and returned, and how many partitions moved.

    ``before`` None: no earlier membership is known. A member *returned* if a member that left had its instance id or,
    without one, its client id and host.
    """
    if before is None:
        return {"cause": "first-seen", "joined": [], "left": [], "returned": [], "partitions_moved": 0}
    joined, left = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    gone = Counter(lasting_name(ShownClient.of(before[name])) for name in left)
    returned = []
    for name in joined:
        if gone[client := lasting_name(ShownClient.of(after[name]))] > 0:
            gone[client] -= 1
            returned.append(name)
    owners = {(topic, number): name for name, member in before.items() for topic, number in member["partitions"]}
    moved = sum(
        owners.get((topic, number), name) != name
        for name, member in after.items()
        for topic, number in member["partitions"]
    )
    return {
        "cause": _cause(joined, left, returned, moved),
        "joined": joined[:NAMES_KEPT],
        "joined_total": len(joined),
        "left": left[:NAMES_KEPT],
        "left_total": len(left),
        "returned": returned[:NAMES_KEPT],
        "returned_total": len(returned),
        "partitions_moved": moved,
    }


def _cause(joined: list[str], left: list[str], returned: list[str], moved: int) -> str:
    if joined and left:
        return "returned" if len(returned) == len(joined) == len(left) else "joined-and-left"
    if joined or left:
        return "joined" if joined else "left"
    return "partitions-moved" if moved else "same-members"
