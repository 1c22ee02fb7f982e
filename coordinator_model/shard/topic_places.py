"""Where a group's view and its findings name topics: groups of KIP-848 and share groups do so by id."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def topic_places(view: Mapping[str, Any] | None, findings: Iterable[Mapping[str, Any]] = ()) -> Iterator[Any]:
    """Yield what holds a topic, and the key or index of it there."""
    if view is not None and view["type"] not in ("consumer", "share"):
        return  # classic groups name topics, streams groups subtopologies
    for member in view["members"] if view is not None else ():
        for name in ("assignment", "target", "revoking"):
            yield from ((held, "topic") for held in member.get(name, ()))
        for blocker in member.get("waits_for", ()):
            yield from ((partition, 0) for partition in blocker["partitions"])
    for finding in findings:
        yield from ((partition, 0) for partition in finding.get("partitions", ()))


def name_topics(
    names: Mapping[str, str], view: Mapping[str, Any] | None, findings: Iterable[Mapping[str, Any]] = ()
) -> None:
    """Put names in the place of ids; an id without a name stays."""
    for holder, place in topic_places(view, findings):
        holder[place] = names.get(holder[place], holder[place])
