"""The input of a shard in one batch, and the parts in which it is applied."""

from collections.abc import Iterable
from typing import NamedTuple

from coordinator_model.brokers.line_clocks import Step
from coordinator_model.commit_block import CommitBlock
from coordinator_model.events import FAR_MS, Event, RecordRead
from coordinator_model.heartbeat_block import HeartbeatBlock, order
from coordinator_model.shard.commit_times import CommitRow

Place = tuple[str, int]
"""Topic and partition."""


class OffsetsRead(NamedTuple):
    """A range of offsets of a telemetry partition, all of which were read."""

    topic: str
    partition: int
    first: int
    last: int


class Batch(NamedTuple):
    """The input of a shard: events, heartbeats and commits as blocks, and how far the sources have been read.

    ``records_read_ms``: the instant up to which records have been read. ``read``: the offsets of telemetry that were
    read, for all shards. ``final``: this is the last batch.
    """

    events: Iterable[Event]
    heartbeats: Iterable[HeartbeatBlock] = ()
    wall_ms: int | None = None
    records_read_ms: int = FAR_MS
    read: Iterable[OffsetsRead] = ()
    final: bool = False
    commits: Iterable[CommitBlock] = ()


class Part(NamedTuple):
    """The events between two steps of the coordinator's clock that may be applied.

    Heartbeats, offset commits and other events are three sequences, each in order. ``moved_ahead`` maps the offsets of
    records to the instants at which they are applied, if those are before the records' own instants.
    """

    step: Step | None
    heartbeats: HeartbeatBlock
    events: list[Event]
    commits: list[CommitRow]
    moved_ahead: dict[int, int]

    @property
    def last_ms(self) -> int:
        """The instant of the part's last event or last commit, whichever is later; 0: there is none."""
        return max(self.events[-1][0] if self.events else 0, self.commits[-1][0] if self.commits else 0)


def applied_at(event: Event, moved_ahead: dict[int, int]) -> tuple[int, int, str, int, int]:
    """Return an event's place in the order: when it is applied, and what orders events of one instant."""
    place: tuple[int, int, str, int, int] = order(event)
    if type(event) is RecordRead and event.offset in moved_ahead:
        return (moved_ahead[event.offset], *place[1:])
    return place
