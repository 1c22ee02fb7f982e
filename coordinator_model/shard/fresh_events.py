"""Which events of a batch are new.

Batches overlap when a source is read again, so an event at an offset that was read before is a duplicate. If a topic
was recreated or truncated, its offsets begin again. Then an event at such an offset is new if it is newer than
everything that was read from its partition.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from coordinator_model.brokers.line_clocks import Item, Sifted
from coordinator_model.commit_block import CommitBlock
from coordinator_model.events import (
    FAR_MS,
    BrokerLine,
    ClientWord,
    CoordinatorLine,
    Event,
    LeaderNamed,
    OffsetCommitted,
    RecordRead,
)
from coordinator_model.heartbeat_block import HeartbeatBlock
from coordinator_model.shard.batch import Batch, Place
from coordinator_model.shard.commit_times import CommitRow, fresh_rows, now_read, rows_of
from coordinator_model.shard.shard_memory import ShardMemory


class FreshEvents:
    """The events of a batch that were not read before, by kind."""

    def __init__(self, memory: ShardMemory) -> None:
        self._memory = memory
        self._seen, self._newest_ms, self._clock = memory.offsets, memory.newest_ms, memory.clock
        self._greatest: dict[Place, int] = {}
        self._again: dict[Place, dict[int, Event]] = {}
        """Events at offsets that were read before, but newer than everything that was read from their partition."""
        self.items: list[Item] = []
        """Lines, and blocks of heartbeats."""
        self.others: list[Event] = []
        self.named: list[LeaderNamed] = []
        self.polls: list[ClientWord] = []
        self.logged: list[CoordinatorLine] = []
        self.commits: list[CommitRow] = []
        self.committed = 0
        self.duplicates = 0

    @classmethod
    def of(cls, memory: ShardMemory, batch: Batch) -> "FreshEvents":
        """Return the events of a batch that were not read before."""
        fresh = cls(memory)
        for block in batch.heartbeats:
            fresh._add_block(block)
        fresh._add(batch.events)
        fresh._add_commits(batch.commits)
        return fresh

    def _add_block(self, block: HeartbeatBlock) -> None:
        """Add the heartbeats of one source."""
        (_, topic, partition), *others = block.sources()
        least, greatest = block.offset_span()
        place = (topic, partition)
        if others or least <= self._seen.get(place, -1):
            self._add(block.rows())
            return
        self._greatest[place] = max(self._greatest.get(place, -1), greatest)
        self.items.append(((topic, partition, least), block))

    def _add_commits(self, blocks: Iterable[CommitBlock]) -> None:
        """Add offset commits."""
        for block in blocks:
            self.committed += sum(block.counts)
            self.commits += rows_of(block)

    def _add(self, events: Iterable[Event]) -> None:
        """Add events: each by its kind, commits as one block. Most are lines, so lines are tried before most kinds."""
        commits: list[OffsetCommitted] = []
        for event in events:
            if isinstance(event, OffsetCommitted):
                commits.append(event)
            elif not self._is_new(event):
                continue
            elif isinstance(event, BrokerLine):
                self.items.append((event[2:5], event))
            elif isinstance(event, RecordRead):
                self.others.append(event)
            elif isinstance(event, LeaderNamed):
                self.named.append(event)
            elif isinstance(event, ClientWord):
                self.polls.append(event)
            else:
                self.logged.append(event)
        if commits:
            self._add_commits([CommitBlock.of_events(commits)])

    def _is_new(self, event: Event) -> bool:
        """Note the offset of an event, and return whether the event was not read before."""
        place, offset = event[2:4], event.offset
        if offset > self._seen.get(place, -1) or (type(event) is LeaderNamed and offset != self._seen[place]):
            # the offset of a leader is an instant of this machine's clock, which may be set back
            if offset > self._greatest.get(place, -1):
                self._greatest[place] = offset
            return True
        if type(event) is LeaderNamed:  # a leader is named in each batch, at the same offset until it changes
            return False
        apart_ms = self._clock.stepped_ms(getattr(event, "broker", ""))
        if event.order_ms - apart_ms <= self._newest_ms.get(place, FAR_MS):
            self.duplicates += 1
            return False
        self._again.setdefault(place, {})[offset] = event
        return True

    def recreated(self, sifted: Sifted) -> set[Place]:
        """Return the partitions whose offsets begin again, as at least one credible event at a known offset shows."""
        doubted = {line[2:5] for line in sifted.misdated} | {line[2:5] for line in sifted.waiting}
        return {place for place, events in self._again.items() if any(e[2:5] not in doubted for e in events.values())}

    def note_read(self, sifted: Sifted, recreated: AbstractSet[Place], credible_ms: int) -> None:
        """Note the offsets and instants that were read now, and leave out commits that were read before.

        ``credible_ms``: a commit that is later moves nothing but the offset. If its topic was recreated, it would hide
        all other commits until its instant. Records from the future have been redated before.
        """
        self._leave_out_commits(credible_ms)
        again = {place: max(self._again[place]) for place in recreated}
        self._memory.offsets = self._seen | self._greatest | again
        self._note_newest(sifted)

    def _leave_out_commits(self, credible_ms: int) -> None:
        """Leave out the commits that were read before, and note how far commits have been read."""
        read_to, rows = self._memory.commits_read, len(self.commits)
        self.commits = fresh_rows(self.commits, read_to)
        self.duplicates += rows - len(self.commits)
        self._memory.commits_read = now_read(self.commits, read_to, credible_ms)

    def _note_newest(self, sifted: Sifted) -> None:
        """Note the newest instant that was read from each partition."""
        newest_ms = self._newest_ms
        for (broker, topic, partition), at_ms in sifted.newest.items():
            here_ms = at_ms - self._clock.stepped_ms(broker)
            newest_ms[topic, partition] = max(here_ms, newest_ms.get((topic, partition), 0))
        for event in self.others:
            place = (event[2], event[3])
            newest_ms[place] = max(event[0], newest_ms.get(place, 0))
