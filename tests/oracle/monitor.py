"""The monitor, which reads a life as the job would: in batches, with a dump and a restore between two of them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from coordinator_model.brokers.ticks import Ticker
from coordinator_model.capture_replay import _transitions
from coordinator_model.decode.cluster_row import read_cluster_row
from coordinator_model.decode.parse import RejectedRow, RowParser, SourceRow
from coordinator_model.decode.source_row import CLUSTER
from coordinator_model.events import ClientWord, Event, OffsetCommitted, RecordRead, Tick
from coordinator_model.group_report import read_outputs
from coordinator_model.incidents import to_contract
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.session_timer import latest_session, unheard_since
from coordinator_model.shard.shard import Shard, ShardSettings

PROBE = re.compile(rb'"statesFilter":\["probe-(\d+)"')
WITHOUT_BROKER = (RecordRead, OffsetCommitted, ClientWord)


@dataclass
class Monitor:
    """A shard that is fed with rows."""

    settings: ShardSettings
    outputs: list[dict[str, Any]] = field(default_factory=list)
    rejected: list[RejectedRow] = field(default_factory=list)
    reader: RowParser = field(default_factory=RowParser)

    def __post_init__(self) -> None:
        self.shard = Shard.restore(0, self.settings, None)
        self._ticker = Ticker()
        self._probes: dict[int, Tick] = {}

    def read(self, rows: Iterable[SourceRow], *, final: bool = False, wall_ms: int | None = None) -> None:
        """Apply a batch. ``final``: it is the last one. ``wall_ms``: the time on the monitor's clock."""
        events: list[Event] = []
        for row in rows:
            if row.source == CLUSTER:
                named = read_cluster_row(row.value or b"").named(0)
                events += [named] if named is not None else []
                continue
            read = self._read(row)
            if isinstance(read, RejectedRow):
                self.rejected.append(read)
                continue
            for event in read:
                if isinstance(event, WITHOUT_BROKER):
                    events.append(event)
                elif isinstance(event, Tick):
                    self._ticker.observe(event)
                else:
                    self._ticker.observe(Tick(*event[:5], "", event.broker, None))
                    events.append(event)
        count = len(self.outputs)
        said = self.shard.apply([*events, *self._ticker.take()], final=final, wall_ms=wall_ms)
        self.outputs += [{**output, "seq": count + output["seq"]} for output in said]

    def _read(self, row: SourceRow) -> list[Event] | RejectedRow:
        """Read a row. Many rows are probes: the first of each broker is parsed, the others differ in three fields."""
        number = PROBE.search(row.value or b"")
        known = self._probes.get(row.partition)
        if number is None or known is None or known.connection.encode() not in (row.value or b""):
            read = self.reader.read(row)
            if number is not None and isinstance(read, list):
                [self._probes[row.partition]] = read
            return read
        return [known._replace(order_ms=row.timestamp_ms, offset=row.offset, probe=int(number[1]))]

    def restart(self) -> None:
        """Dump the state and restore it."""
        self.shard = Shard.restore(0, self.settings, self.shard.dump())

    @property
    def is_up_to_date(self) -> bool:
        """Whether all that was read has been applied. Probes may wait for other brokers: they concern no group."""
        memory = self.shard.memory
        if memory.doubts:
            return False
        held = any(not isinstance(event, Tick) for event in memory.held)
        return not held and not memory.held_heartbeats.length and not memory.held_commits

    def counted(self, name: str) -> int:
        """Return how often the shard counted something, by its name in the ``progress`` outputs."""
        return sum(output["counts"].get(name, 0) for output in self.outputs if output["kind"] == "progress")

    def knows_coordinator(self, broker: str) -> bool:
        """Tell whether the monitor knows that a broker is the coordinator and has loaded the groups."""
        return self.shard.clock.coordinator == broker and not self.shard.clock.waiting

    def replica(self, group: str) -> GroupReplica:
        return self.shard._groups.replica(group)

    def deadline_ms(self, group: str, member_id: str) -> int | None:
        """Return when the session of a member ends, as far as the replica knows."""
        context = self.shard._groups.context(group, self.shard.clock.progress_ms)
        member = self.replica(group).members[member_id]
        session = latest_session(member, context)
        return None if session is None else session.end_ms

    def unheard_since_restart(self, group: str, member_id: str) -> bool:
        """Tell whether nothing was heard of a member since its coordinator paused, moved or restarted."""
        return bool(unheard_since(self.replica(group).members[member_id], self.shard.clock.timer_resets))

    def views(self) -> dict[str, dict[str, Any]]:
        """Return the group objects by the group's name."""
        return {str(view["group"]): view for view in self.shard.views()}

    def incidents(self) -> list[dict[str, Any]]:
        """Return the incidents as `replay` prints them."""
        return [to_contract(transition) for transition in _transitions(read_outputs(self.outputs), self.settings)]
