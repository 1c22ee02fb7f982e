"""What a shard is told from outside: the same for all shards of a cluster, and the same for a whole run of the job."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coordinator_model.states import GroupType
from coordinator_model.thresholds import DEFAULT_THRESHOLDS, Thresholds


def no_own_thresholds(_group: str) -> Thresholds | None:
    """Say of every group that it has the thresholds of all."""
    return None


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """What a shard is told from outside; the same for all shards of a cluster."""

    cluster: str
    partitions: int
    live_from_ms: int
    """Nothing that was decided before this instant is raised: catching up."""
    thresholds: Thresholds = DEFAULT_THRESHOLDS
    group_thresholds: Callable[[str], Thresholds | None] = no_own_thresholds
    """The thresholds of a group that has its own; None for the others."""
    consumer_session_timeouts_ms: Mapping[str, int] = field(default_factory=dict)
    """KIP-848 session timeouts by group; "" is the broker's default."""
    share_session_timeouts_ms: Mapping[str, int] = field(default_factory=dict)
    """The same of share groups."""
    streams_session_timeouts_ms: Mapping[str, int] = field(default_factory=dict)
    """The same of streams groups."""
    topic_partitions: Mapping[str, int] = field(default_factory=dict)
    """Topic to its number of partitions, as of the start of the run; topics left out are not judged by it."""
    view_refresh_ms: int = 10_000

    def thresholds_of(self, group: str) -> Thresholds:
        """Return a group's thresholds."""
        own = self.group_thresholds(group)
        return self.thresholds if own is None else own

    def session_timeout_ms(self, group: str, type_: GroupType | None, thresholds: Thresholds) -> int | None:
        """Return the session timeout of a group's members that bring none of their own; None: unknown."""
        by_group, default_ms = self.consumer_session_timeouts_ms, thresholds.consumer_session_timeout_ms
        if type_ is GroupType.SHARE:
            by_group, default_ms = self.share_session_timeouts_ms, None
        elif type_ is GroupType.STREAMS:
            by_group, default_ms = self.streams_session_timeouts_ms, None
        return by_group.get(group, by_group.get("", default_ms))
