"""Compact copies of the shards' views of groups: facts, members, and who has owned which partition since when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from coordinator_model.group_report import GroupReport
from coordinator_model.lag.ownership import facts_of, owner_of
from coordinator_model.lag.partition import GroupFacts, Owner
from coordinator_model.lag.stall import ALIVE
from coordinator_model.states import GroupState, GroupType
from streaming.run.lag.commit_table import NOBODY, SHARED, CommitTable, Places, pair_key

MAX_PARTITION = 2**31 - 1

Held = tuple[tuple[str, tuple[int, ...]], ...]
"""Topics and partitions of a member."""


@dataclass(slots=True)
class SeenGroup:
    """A group as its newest view shows it; `owners` by number, their `since_ms` not filled in."""

    facts: GroupFacts
    owners: tuple[Owner, ...] = ()
    held: tuple[Held, ...] = field(default=(), repr=False)

    def says_more_than(self, before: "SeenGroup | None") -> bool:
        """Tell whether anything but the instant of the view is new."""
        if before is None:
            return True
        facts = before.facts._replace(view_ms=self.facts.view_ms)
        return (self.facts, self.owners, self.held) != (facts, before.owners, before.held)

    def dump(self) -> tuple[Any, ...]:
        """Return the whole content in a form that `marshal` can write."""
        return tuple(self.facts), [tuple(owner) for owner in self.owners], self.held

    @classmethod
    def load(cls, kept: tuple[Any, ...]) -> "SeenGroup":
        """Return the group that was dumped; it is no longer known who is alive."""
        facts, owners, held = kept
        return cls(GroupFacts(*facts), tuple(Owner(*owner) for owner in owners), held).unheard()

    def shown(self, at_ms: int) -> None:
        """Record that the group was shown again, with no news but heartbeats."""
        self.facts = self.facts._replace(view_ms=max(at_ms, self.facts.view_ms))

    def unheard(self) -> "SeenGroup":
        """Return the group with nobody known to be alive."""
        if not any(owner.liveness == ALIVE for owner in self.owners):
            return self
        owners = (owner._replace(liveness="unknown") if owner.liveness == ALIVE else owner for owner in self.owners)
        return replace(self, owners=tuple(owners))

    @property
    def members(self) -> tuple[str, ...]:
        """The ids of its members."""
        return tuple(owner.member_id for owner in self.owners)


def seen(report: GroupReport, view: Mapping[str, Any]) -> SeenGroup:
    """Make a group of a report and its view."""
    facts = facts_of(report, view)
    owners = tuple(owner_of(member, 0) for member in view["members"])
    return SeenGroup(facts, owners, tuple(_held(member, facts) for member in view["members"]))


def note_owners(table: CommitTable, changes: Sequence[tuple[Sequence[str], SeenGroup]]) -> None:
    """Write the owners of the partitions of some groups. Each group comes with the members that it had before.

    The owners in the table are numbers of those members. A member that keeps a partition keeps its `since_ms`. All
    groups are written together, because a start shows thousands of them.
    """
    if not changes:
        return
    held = [
        (at, number, pair_key(now.facts.group, topic), partitions)
        for at, (_, now) in enumerate(changes)
        for number, of_member in enumerate(now.held)
        for topic, partitions in of_member
    ]
    lengths = [len(partitions) for *_, partitions in held]
    of_group, numbers, of_pair = (
        np.repeat(np.array(column, np.int64), lengths)
        for column in ([at for at, *_ in held], [number for _, number, *_ in held], range(len(held)))
    )
    partitions = np.array([*chain.from_iterable(partitions for *_, partitions in held)], np.int32)
    slots = table.slots_for(Places([key for _, _, key, _ in held], of_pair, partitions))
    renumbered = [_renumbered(before, now.members) for before, now in changes]
    firsts = np.cumsum([0, *map(len, renumbered[:-1])])
    known = table.owner[slots]
    now_known = np.concatenate(renumbered)[firsts[of_group] + np.maximum(known, 0)]
    keeps = (known >= 0) & (now_known == numbers)
    since_ms = np.array([_since_ms(now.facts) for _, now in changes], np.int64)[of_group]
    table.since_ms[slots] = np.where(keeps, table.since_ms[slots], since_ms)
    of_groups, _ = table.slots_of_each([now.facts.group for _, now in changes])
    table.owner[of_groups] = NOBODY
    is_share = np.array([now.facts.type == GroupType.SHARE for _, now in changes], np.bool_)[of_group]
    table.owner[slots] = np.where(is_share, SHARED, numbers)
    table.free_unused(of_groups)


def _renumbered(before: Sequence[str], now: Sequence[str]) -> list[int]:
    """Return the number that each former member has now. A last `NOBODY` keeps the list from being empty."""
    numbers = {member: number for number, member in enumerate(now)}
    return [*(numbers.get(member, NOBODY) for member in before), NOBODY]


def _since_ms(facts: GroupFacts) -> int:
    """Return since when members have owned the partitions that are new to them in this view."""
    return facts.stable_since_ms if facts.state == GroupState.STABLE and facts.stable_since_ms else facts.view_ms


def _held(member: Mapping[str, Any], facts: GroupFacts) -> Held:
    """Return what a member owns; members of a streams group own tasks of its topology, not partitions."""
    if facts.type == GroupType.STREAMS:
        return ()
    return tuple(
        (topic["topic"], tuple([number for number in topic["partitions"] if 0 <= number <= MAX_PARTITION]))
        for topic in member["assignment"]
    )
