"""Finds where a group's view and findings name topics, so that topic ids can be replaced by names.

KIP-848 consumer groups and share groups name topics by id.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def topic_places(view: Mapping[str, Any] | None, findings: Iterable[Mapping[str, Any]] = ()) -> Iterator[Any]:
    """Yield each dict or list that holds a topic, and the topic's key or index in it."""
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
    """Replace topic ids by names. An id without a known name stays."""
    for holder, place in topic_places(view, findings):
        holder[place] = names.get(holder[place], holder[place])
