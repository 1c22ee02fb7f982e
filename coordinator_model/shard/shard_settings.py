"""The settings of the shards of one cluster. They do not change during a run of the job."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coordinator_model.added_partitions import Added
from coordinator_model.states import GroupType
from coordinator_model.thresholds import DEFAULT_THRESHOLDS, Thresholds


def no_own_thresholds(_group: str) -> Thresholds | None:
    """Return None for every group: no group has its own thresholds."""
    return None


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """The settings that all shards of one cluster share."""

    cluster: str
    partitions: int
    live_from_ms: int
    """Findings from before this instant are not reported, because the job was still catching up."""
    thresholds: Thresholds = DEFAULT_THRESHOLDS
    group_thresholds: Callable[[str], Thresholds | None] = no_own_thresholds
    """Returns a group's own thresholds, or None if it has none."""
    consumer_session_timeouts_ms: Mapping[str, int] = field(default_factory=dict)
    """KIP-848 session timeouts by group; "" is the broker's default."""
    share_session_timeouts_ms: Mapping[str, int] = field(default_factory=dict)
    """The same for share groups."""
    streams_session_timeouts_ms: Mapping[str, int] = field(default_factory=dict)
    """The same for streams groups."""
    topic_partitions: Mapping[str, int] = field(default_factory=dict)
    """By topic: its number of partitions at the start of the run. If a topic is missing here, its number is unknown."""
    added_partitions: Added = field(default_factory=dict)
    """By topic: the partitions that were added to it while it was watched."""
    view_refresh_ms: int = 10_000

    def thresholds_of(self, group: str) -> Thresholds:
        """Return a group's thresholds."""
        own = self.group_thresholds(group)
        return self.thresholds if own is None else own

    def session_timeout_ms(self, group: str, type_: GroupType | None, thresholds: Thresholds) -> int | None:
        """Return the session timeout of a group's members that do not set their own; None: unknown."""
        by_group, default_ms = self.consumer_session_timeouts_ms, thresholds.consumer_session_timeout_ms
        if type_ is GroupType.SHARE:
            by_group, default_ms = self.share_session_timeouts_ms, None
        elif type_ is GroupType.STREAMS:
            by_group, default_ms = self.streams_session_timeouts_ms, None
        return by_group.get(group, by_group.get("", default_ms))
