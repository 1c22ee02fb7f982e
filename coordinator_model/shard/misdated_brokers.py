"""Leaves out the lines of brokers whose dates do not agree with their records (``line_dates``)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from coordinator_model.brokers.line_clocks import Item
from coordinator_model.brokers.line_dates import ANNOUNCED, EPOCH, WRITTEN, Logged, Told
from coordinator_model.decode.records import RecordType
from coordinator_model.events import BrokerLine, ConsumerHeartbeat, Event, JoinAnswered, RecordRead, SyncAnswered
from coordinator_model.heartbeat_block import HeartbeatBlock
from coordinator_model.shard.fresh_events import FreshEvents
from coordinator_model.shard.shard_memory import ShardMemory

CURRENT_ASSIGNMENTS = (
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    RecordType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    RecordType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
)


class Misdating(NamedTuple):
    """A broker whose lines have turned out to be misdated: by how much, and the date of its newest line."""

    broker: str
    apart_ms: int
    line_ms: int


class LeftOut(NamedTuple):
    """Which brokers' lines are left out.

    ``began``: those whose lines are misdated as of this batch. ``lines``: by broker, how many lines of the batch are
    left out, and one of them.
    """

    began: list[Misdating]
    lines: dict[str, tuple[int, BrokerLine]]


def leave_out_misdated(memory: ShardMemory, fresh: FreshEvents, hold_ms: int, live_from_ms: int) -> LeftOut:
    """Compare the dates of new lines and records, and leave out the lines of brokers that misdate them.

    ``live_from_ms``: when the monitor was first started.
    """
    dates, brokers = memory.dates, memory.clock.brokers
    before = set(dates.misdated)
    lines = (line for _, line in fresh.items if not isinstance(line, HeartbeatBlock))
    dates.compare(_logged(lines), _recorded(fresh.others), hold_ms, live_from_ms)
    if not (before or dates.misdated):
        return LeftOut([], {})
    began = [
        Misdating(name, dates.apart[name].by_ms, brokers[name].line_ms if name in brokers else 0)
        for name in dates.misdated
        if name not in before
    ]
    for misdating in began:
        _forget(memory, misdating.broker)
    left_out = dict[str, tuple[int, BrokerLine]]()
    fresh.items = [part for item in fresh.items for part in _believed(item, dates.misdated, left_out)]
    return LeftOut(began, left_out)


def _recorded(events: Iterable[Event]) -> Iterator[tuple[Told, int]]:
    """Yield the events that records show, and when they happened."""
    for record in events:
        if not isinstance(record, RecordRead) or record.value is None:
            continue
        value, group = record.value, record.group
        if record.record_type == RecordType.GROUP_METADATA and value["members"]:
            yield Told(WRITTEN, group, "", value["generation"]), record.order_ms
            if value.get("currentStateTimestamp", -1) > 0:
                yield Told(ANNOUNCED, group, "", value["generation"]), value["currentStateTimestamp"]
        elif record.record_type in CURRENT_ASSIGNMENTS:
            yield Told(EPOCH, group, record.key["memberId"], value["memberEpoch"]), record.order_ms


def _logged(lines: Iterable[BrokerLine]) -> Iterator[Logged]:
    """Yield the lines that show an event of which there is a record, too."""
    for line in lines:
        if isinstance(line, ConsumerHeartbeat) and line.error == 0 and line.epoch > line.request_epoch >= 0:
            told = Told(EPOCH, line.group, line.member_id, line.epoch)
        elif isinstance(line, JoinAnswered) and line.error == 0 and line.members:
            told = Told(ANNOUNCED, line.group, "", line.generation)
        elif isinstance(line, SyncAnswered) and line.error == 0 and line.from_leader:
            told = Told(WRITTEN, line.group, "", line.generation)
        else:
            continue
        waited = not isinstance(line, JoinAnswered)  # a generation is announced as the JoinGroup is answered
        yield Logged(told, line.broker, line.arrival_ms if waited else line.order_ms, line.order_ms)


def _forget(memory: ShardMemory, broker: str) -> None:
    """Forget a broker's clock, and its lines that are held back."""
    memory.clock.brokers.pop(broker, None)
    memory.doubts.pop(broker, None)
    memory.behind_ms = None
    memory.held = [event for event in memory.held if not isinstance(event, BrokerLine) or event.broker != broker]
    beats = memory.held_heartbeats
    if beats.length and broker in beats.brokers():
        memory.held_heartbeats = HeartbeatBlock.of_events([beat for beat in beats.rows() if beat.broker != broker])


def _believed(item: Item, misdated: dict[str, int], left_out: dict[str, tuple[int, BrokerLine]]) -> list[Item]:
    """Return a line or block without the lines of brokers that misdate them, and count those."""
    place, what = item
    whole = isinstance(what, HeartbeatBlock) and not misdated.keys() & what.brokers()
    if whole or (not isinstance(what, HeartbeatBlock) and what.broker not in misdated):
        return [item]
    lines: list[BrokerLine] = list(what.rows()) if isinstance(what, HeartbeatBlock) else [what]
    believed: list[Item] = []
    for line in lines:
        if line.broker in misdated:
            left_out[line.broker] = (left_out.get(line.broker, (0, line))[0] + 1, line)
        else:
            believed.append(((*place[:2], line.offset), line))
    return believed
