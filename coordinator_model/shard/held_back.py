"""Events that are held back: those that are newer than the instant up to which the slowest live source has been read.

They wait in the memory for ``hold_ms`` at most, and are applied with the next batch. An event waits by the clock that
dated it: that of its broker, which may have stepped away from the coordinator's, or that of this machine. What is dated
further in the future does not wait: a record counts as written when it was read, and an offset commit is left out.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, pairwise
from operator import attrgetter, itemgetter

from coordinator_model.brokers.coordinator_tracker import CoordinatorTracker
from coordinator_model.brokers.line_clocks import Step
from coordinator_model.decode.records import RecordType
from coordinator_model.events import FAR_MS, BrokerLine, Event, Heartbeat, RecordRead
from coordinator_model.heartbeat_block import NO_HEARTBEATS, HeartbeatBlock, order
from coordinator_model.shard.batch import Part, applied_at
from coordinator_model.shard.commit_times import CommitRow
from coordinator_model.shard.shard_memory import ShardMemory


def joined(
    memory: ShardMemory,
    step: Step | None,
    lines: Iterable[BrokerLine],
    blocks: Iterable[HeartbeatBlock],
    rest: Iterable[Event],
    commits: list[CommitRow],
    hold_ms: int,
) -> Part:
    """Return what was held back and what came now, in order. After that, the memory holds nothing back."""
    beats: list[Heartbeat] = []
    others = list(memory.held)
    for line in lines:
        (beats if type(line) is Heartbeat else others).append(line)  # type: ignore[arg-type] # of its own type
    others.extend(rest)
    loose = HeartbeatBlock.of_events(sorted(beats, key=order))
    heartbeats = HeartbeatBlock.joined([memory.held_heartbeats, *blocks, loose])
    rows = sorted(memory.held_commits + commits)
    memory.held, memory.held_heartbeats, memory.held_commits = [], NO_HEARTBEATS, []
    events = sorted(others, key=order)
    records = [event for event in events if type(event) is RecordRead]
    moved = moved_ahead(records, hold_ms)
    if moved:
        events.sort(key=lambda event: applied_at(event, moved))
    written_ms = [(record.offset, moved.get(record.offset, record.order_ms)) for record in records]
    return Part(step, heartbeats, events, no_later(rows, written_ms, hold_ms), moved)


def moved_ahead(records: list[RecordRead], hold_ms: int) -> dict[int, int]:
    """Return when records are applied, by offset, if that is before their own instant.

    Records are written in the order of their offsets. The clock of a new coordinator may be behind its predecessor's.
    Then the predecessor's last records have later instants than the records that follow them, and are applied just
    before these, or before the group's next generation was announced. If instants are further apart than ``hold_ms``, a
    topic was recreated or a record is misdated, so nothing follows from the offsets.
    """
    if all(one.offset < other.offset for one, other in pairwise(records)):
        return {}
    moved: dict[int, int] = {}
    next_ms = FAR_MS
    of_group: dict[str, int] = {}
    announced: dict[str, tuple[int | None, int]] = {}
    for record in sorted(records, key=attrgetter("offset"), reverse=True):
        group, at_ms, (generation, announced_ms) = record.group, record.order_ms, _announced(record, hold_ms)
        if at_ms > next_ms + hold_ms:
            of_group.clear()
            announced.clear()
        before_ms = min(next_ms, of_group.get(group, FAR_MS))
        if before_ms < at_ms <= next_ms + hold_ms:
            next_generation, next_announced_ms = announced.get(group, (None, FAR_MS))
            is_next = generation is None or generation != next_generation
            moved[record.offset] = of_group[group] = min(before_ms, next_announced_ms) if is_next else before_ms
        else:
            next_ms = at_ms
        announced[group] = generation, announced_ms
    return moved


def _announced(record: RecordRead, hold_ms: int) -> tuple[int | None, int]:
    """Return the generation of a record, and when it was announced; of another record None, and when it was written.

    The members' JoinGroups are answered before the leader's SyncGroup, whose assignment the record has.
    """
    at_ms = record.order_ms
    if record.record_type != RecordType.GROUP_METADATA or record.value is None:
        return None, at_ms
    announced_ms: int = record.value.get("currentStateTimestamp", -1)
    return record.value["generation"], announced_ms if at_ms - hold_ms <= announced_ms <= at_ms else at_ms


def no_later(rows: list[CommitRow], written_ms: list[tuple[int, int]], hold_ms: int) -> list[CommitRow]:
    """Date offset commits no later than a record that follows them in the log, for the reason in ``moved_ahead``.

    ``written_ms``: offsets of records, each with the instant at which it is applied. A commit that seems to be later
    than the record of a generation would extend the session of a member that owned nothing then.
    """
    if not rows or not written_ms:
        return rows
    least = list(accumulate(map(itemgetter(1), reversed(rows)), min))[::-1]
    instants_ms = [row[0] for row in rows]
    starts = [(bisect_right(instants_ms, at_ms), offset, at_ms) for offset, at_ms in written_ms]
    before = [start for start in starts if start[0] < len(rows) and least[start[0]] < start[1]]
    for start, offset, at_ms in sorted(before, key=itemgetter(2), reverse=True):
        for place in range(start, bisect_right(instants_ms, at_ms + hold_ms)):
            commit_ms, commit_offset, key, gone = rows[place]
            if commit_offset < offset and at_ms < commit_ms:
                rows[place] = (at_ms, commit_offset, key, gone)
    return sorted(rows) if before else rows


def hold_back(memory: ShardMemory, part: Part, watermark_ms: int) -> Part:
    """Hold back what is newer than an instant by the coordinator's clock; return the rest."""
    known = bisect_right(part.commits, watermark_ms, key=itemgetter(0))
    memory.held_commits = part.commits[known:]
    heartbeats, memory.held_heartbeats = _divided_heartbeats(memory.clock, part.heartbeats, watermark_ms)
    events, memory.held = _divided_events(memory.clock, part, watermark_ms)
    return part._replace(heartbeats=heartbeats, events=events, commits=part.commits[:known])


def _divided_heartbeats(
    clock: CoordinatorTracker, beats: HeartbeatBlock, watermark_ms: int
) -> tuple[HeartbeatBlock, HeartbeatBlock]:
    """Return the heartbeats up to an instant, which is converted to the clock that dated each one, and the others.

    Nearly always one broker's clock dated all of them, and then the block is cut.
    """
    aheads_ms = {0} if clock.agree else {clock.broker_ahead_ms(broker) for broker in beats.brokers()}
    if len(aheads_ms) <= 1:
        until = beats.until(watermark_ms + max(aheads_ms, default=0))
        return beats.cut(0, until), beats.cut(until, beats.length)
    divided: tuple[list[Heartbeat], list[Heartbeat]] = ([], [])
    for beat in beats.rows():
        divided[beat.order_ms > watermark_ms + clock.broker_ahead_ms(beat.broker)].append(beat)
    return HeartbeatBlock.of_events(divided[0]), HeartbeatBlock.of_events(divided[1])


def _divided_events(clock: CoordinatorTracker, part: Part, watermark_ms: int) -> tuple[list[Event], list[Event]]:
    """Return the events up to an instant, which is converted to the clock that dated each one, and the others."""
    if clock.agree:  # so the events are in the order of the coordinator's time
        cut = len(part.events)
        while cut and part.events[cut - 1][0] > watermark_ms:
            cut -= 1
        return part.events[:cut], part.events[cut:]
    divided: tuple[list[Event], list[Event]] = ([], [])
    for event in part.events:
        at_ms = applied_at(event, part.moved_ahead)[0]
        divided[at_ms > watermark_ms + clock.ahead_ms(event)].append(event)
    return divided


def date_as_read(events: list[Event], present_ms: int, credible_ms: int) -> int:
    """Let records that are later than ``credible_ms`` count as written now, when they are read; return how many.

    Some clock was wrong when such a record was written. By its own instant it would be held until then, and be applied
    after records that were written later.
    """
    future = [n for n, event in enumerate(events) if type(event) is RecordRead and event.order_ms > credible_ms]
    for n in future:
        events[n] = events[n]._replace(order_ms=present_ms)
    return len(future)


def leave_out_future(memory: ShardMemory, credible_ms: int) -> int:
    """Drop the held commits that are later than an instant; return how many. They would be held until their instant."""
    kept = bisect_right(memory.held_commits, credible_ms, key=itemgetter(0))
    future = len(memory.held_commits) - kept
    del memory.held_commits[kept:]
    return future


def watermark_ms(memory: ShardMemory, part: Part, latest_ms: int, records_read_ms: int, hold_ms: int) -> int:
    """Return the instant up to which events may be applied. ``latest_ms`` 0: no line has come."""
    if not latest_ms:
        beats = part.heartbeats
        latest_ms = max(part.last_ms, beats.place(-1)[0] if beats.length else 0)
    lines_ms = memory.clock.watermark_ms(hold_ms) if memory.clock.brokers else FAR_MS
    return max(min(lines_ms, records_read_ms), latest_ms - hold_ms)
