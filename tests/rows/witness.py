"""The monitor, reading a world's rows as the live run would: row by row, batch by batch."""

from dataclasses import dataclass, field
from typing import Any

from coordinator_model.capture_replay import _transitions
from coordinator_model.decode.parse import RejectedRow, RowParser, SourceRow
from coordinator_model.events import Event, Tick
from coordinator_model.group_report import read_outputs
from coordinator_model.incidents import to_contract
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.session_timer import latest_session
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.rows.world import T0_MS, number_of_probe

SETTINGS = ShardSettings(cluster="sim", partitions=1, live_from_ms=T0_MS, view_refresh_ms=0)
VIOLATIONS = ("session-expired", "rebalance-timeout", "poll-exceeded")


@dataclass
class Witness:
    """A shard that keeps nothing between batches but its dumped state."""

    settings: ShardSettings = SETTINGS
    rows: list[SourceRow] = field(default_factory=list)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    reader: RowParser = field(default_factory=RowParser)
    _tick: Tick | None = None

    def __post_init__(self) -> None:
        self.shard = Shard.restore(0, self.settings, None)

    def feed(self, rows: list[SourceRow]) -> None:
        """Apply a batch, then go through a dump and a restore as a restart would."""
        self.rows += rows
        events = []
        for row in rows:
            events += self._read(row)
        count = len(self.outputs)
        outputs, state = self.shard.apply(events), self.shard.dump()
        assert [output for output in outputs if output["kind"] == "quarantine"] == []
        self.outputs += [{**o, "seq": count + o["seq"]} for o in outputs]
        self.shard = Shard.restore(0, self.settings, state)

    def _read(self, row: SourceRow) -> list[Event]:
        """Read a row. Nearly all are probes: of those the first is read in full, the others differ in three fields."""
        probe = number_of_probe(row.value or b"")
        if probe is not None and self._tick is not None:
            return [self._tick._replace(order_ms=row.timestamp_ms, offset=row.offset, probe=probe)]
        read = self.reader.read(row)
        assert not isinstance(read, RejectedRow), read
        if probe is not None:
            [tick] = read
            assert isinstance(tick, Tick)
            assert tick.probe == probe
            self._tick = tick
        return read

    def replica(self, group: str) -> GroupReplica:
        return self.shard._groups.replica(group)

    def deadline_ms(self, group: str, member_id: str) -> int | None:
        """When the session of a member ends, as far as the replica knows."""
        context = self.shard._groups.context(group, self.shard.clock.progress_ms)
        member = self.replica(group).members[member_id]
        session = latest_session(member, context)
        return None if session is None else session.end_ms

    def incidents(self) -> list[dict[str, Any]]:
        """Return what people were told of violations: openings, and closings that take one back."""
        told = [to_contract(transition) for transition in _transitions(read_outputs(self.outputs), self.settings)]
        return [transition for transition in told if transition["rule"] in VIOLATIONS]
