"""Which events of a batch may be applied now, and in which order.

The events of one operator key come from several sources, each in its own order and with its own delay. They are applied
in the order of the coordinator's time. An event that was read before is a duplicate (``fresh_events``). A line whose
instant is impossible is left out (``line_clocks``). An event that is newer than the instant up to which the slowest
live source has been read is held back (``held_back``). A step of the coordinator's clock divides a batch into parts
(``step_parts``).
"""

from typing import NamedTuple

from coordinator_model.brokers.leadership import STALE_MS
from coordinator_model.brokers.line_clocks import Sifted, Step, sift
from coordinator_model.events import FAR_MS, Event, LeaderNamed
from coordinator_model.shard.batch import Batch, Part
from coordinator_model.shard.commit_times import CommitRow
from coordinator_model.shard.fresh_events import FreshEvents
from coordinator_model.shard.held_back import date_as_read, hold_back, joined, leave_out_future, watermark_ms
from coordinator_model.shard.lost_lines import lost_lines
from coordinator_model.shard.misdated_brokers import LeftOut, leave_out_misdated
from coordinator_model.shard.shard_memory import ShardMemory
from coordinator_model.shard.step_parts import divided, divided_commits

LATE_MS = 60_000
"""How much later than clients' reports lines may come. The reports do not wait longer than this for lines."""
CREDIBLE_COMMIT_MS = 600_000
"""How far in the future a commit may be. Until then it is held."""


class Taken(NamedTuple):
    """The parts of a batch in order, nearly always one, and what is not applied.

    ``steps``: the steps of all brokers' clocks. ``misdated``: lines whose instant is impossible. ``lost``: brokers with
    missing lines, and the first instant after the loss. ``committed``: how many offset commits came. ``future``: how
    many were left out because their instants are far in the future. ``redated``: how many records count as written when
    they were read, for the same reason. ``left_out``: brokers whose lines are left out, because records contradict
    their dates.
    """

    parts: list[Part]
    steps: list[Step]
    misdated: list[Event]
    duplicates: int
    lost: dict[str, int]
    committed: int
    future: int
    redated: int
    left_out: LeftOut


def take(memory: ShardMemory, batch: Batch, hold_ms: int, live_from_ms: int = 0) -> Taken:
    """Sort a batch together with what was held back, without duplicates, and hold back what is too new."""
    fresh = FreshEvents.of(memory, batch)
    left_out = leave_out_misdated(memory, fresh, hold_ms, live_from_ms)
    present_ms = _present_ms(memory, batch.wall_ms)
    sifted = sift(memory.clock, memory.doubts, fresh.items, present_ms, hold_ms, final=batch.final)
    recreated = fresh.recreated(sifted)
    lost = lost_lines(memory, sifted, batch.read, recreated)
    _note_read(memory, sifted, batch.wall_ms)
    latest_ms = _latest_ms(memory, sifted, batch.wall_ms)
    credible_ms = _credible_ms(latest_ms, batch.wall_ms)
    redated = _date_as_read(memory, fresh, latest_ms, batch.wall_ms, hold_ms)
    fresh.note_read(sifted, recreated, credible_ms)
    told, from_future = _told(memory, fresh, latest_ms, hold_ms)
    others = [*fresh.others, *told, *_named(memory, fresh, batch.wall_ms)]
    parts, future = _parts(memory, sifted, others, fresh.commits, hold_ms), 0
    if not batch.final:
        until_ms = watermark_ms(memory, parts[-1], latest_ms, batch.records_read_ms, hold_ms)
        parts[-1] = hold_back(memory, parts[-1], until_ms)
        future = leave_out_future(memory, credible_ms)
    misdated = [*sifted.misdated, *from_future]
    return Taken(parts, sifted.steps, misdated, fresh.duplicates, lost, fresh.committed, future, redated, left_out)


def _parts(
    memory: ShardMemory, sifted: Sifted, others: list[Event], commits: list[CommitRow], hold_ms: int
) -> list[Part]:
    """Return what was held back and what came now, divided at the steps of the coordinator's clock."""
    steps = sifted.parted_by
    of_each = zip(
        [None, *steps],
        sifted.lines,
        sifted.blocks,
        divided(others, steps),
        divided_commits(commits, steps),
        strict=True,
    )
    return [joined(memory, *each, hold_ms) for each in of_each]


def _date_as_read(memory: ShardMemory, fresh: FreshEvents, latest_ms: int, wall_ms: int | None, hold_ms: int) -> int:
    """Let records from the future, new ones and held ones, count as written now; return how many.

    The coordinator dates its records, and its clock may be ahead of the other brokers' clocks. So its own newest line
    counts, too. If only records are read, this machine's clock shows the present.
    """
    if wall_ms is None:
        return 0
    coordinator = memory.clock.brokers.get(memory.clock.coordinator or "")
    present_ms = latest_ms if coordinator is None else max(latest_ms, coordinator.line_ms)
    credible_ms = max(present_ms, wall_ms) + hold_ms
    return sum(date_as_read(records, present_ms, credible_ms) for records in (fresh.others, memory.held))


def _told(memory: ShardMemory, fresh: FreshEvents, latest_ms: int, hold_ms: int) -> tuple[list[Event], list[Event]]:
    """Return clients' reports and lines of the coordinator's own log, and separately those that are from the future.

    These events move no clock, so one from the future would be held back until its instant has come. ``latest_ms`` 0:
    no line has come that shows the present.
    """
    if not latest_ms or not (fresh.polls or fresh.logged):
        return [*fresh.polls, *fresh.logged], []
    newest_ms = max([0, *(row[0] for row in fresh.commits), *(event.order_ms for event in fresh.others)])
    polled_ms, logged_ms = latest_ms + _late_ms(memory) + hold_ms, max(latest_ms, newest_ms) + hold_ms
    dated: list[tuple[Event, int]] = [(event, polled_ms) for event in fresh.polls]
    dated += [(event, logged_ms) for event in fresh.logged]
    told = [event for event, until_ms in dated if event.order_ms <= until_ms]
    return told, [event for event, until_ms in dated if event.order_ms > until_ms]


def _named(memory: ShardMemory, fresh: FreshEvents, wall_ms: int | None) -> list[LeaderNamed]:
    """Return the leaders that metadata named, dated back by how far lines are behind; none while the job catches up.

    Their instants are by this machine's clock, and current metadata cannot dispute answers of an hour ago. A capture
    has no such clock, so its instants stay. A leader whose lines are misdated counts as one without a request log.
    """
    named = [event._replace(key="") if event.key in memory.dates.misdated else event for event in fresh.named]
    if wall_ms is None:
        return named
    behind_ms = memory.behind_ms or 0
    if behind_ms > STALE_MS:
        return []
    return [event._replace(order_ms=event.order_ms - behind_ms) for event in named]


def _credible_ms(latest_ms: int, wall_ms: int | None) -> int:
    """Return the instant after which a commit counts as being from the future.

    It is measured from the later of two clocks: lines are behind while the job catches up, and brokers' clocks may be
    ahead of this machine's.
    """
    return FAR_MS if wall_ms is None else max(latest_ms, wall_ms) + CREDIBLE_COMMIT_MS


def _note_read(memory: ShardMemory, sifted: Sifted, wall_ms: int | None) -> None:
    """Note how far the brokers have been read, and how far that is behind this machine's clock."""
    clock = memory.clock
    for step in sifted.steps:
        clock.restart_reading(step.broker, step.total_ms)
    for (broker, topic, partition), line_ms in sifted.newest.items():
        clock.read(broker, f"{topic}/{partition}", line_ms, wall_ms)
    for broker, seconds in sifted.disorder.items():
        clock.brokers[broker].note_disorder(seconds.items())
    if wall_ms is not None and sifted.newest:
        newest_ms = max(at_ms - clock.stepped_ms(broker) for (broker, *_), at_ms in sifted.newest.items())
        memory.behind_ms = wall_ms - newest_ms


def _present_ms(memory: ShardMemory, wall_ms: int | None) -> int | None:
    """Return the present by the brokers' clocks; None: it is not known, or the job is catching up."""
    if wall_ms is None or memory.behind_ms is None or memory.behind_ms > STALE_MS:
        return None
    return wall_ms - memory.behind_ms


def _latest_ms(memory: ShardMemory, sifted: Sifted, wall_ms: int | None) -> int:
    """Return the instant that the sources have reached by the coordinator's clock; 0: no line has come.

    That is the newest line, plus the time that has passed since it came. The wall clock alone would not do: while the
    job catches up, it is ahead of everything that is read. So only the time without a line makes a source late, or
    telemetry stalled.
    """
    ahead_ms = memory.clock.stepped_ms(memory.clock.coordinator or "")
    if wall_ms is not None:
        return wall_ms - (memory.behind_ms or 0) + ahead_ms
    lines = [at_ms - memory.clock.stepped_ms(broker) for (broker, *_), at_ms in sifted.newest.items()]
    return max(lines) + ahead_ms if lines else 0


def _late_ms(memory: ShardMemory) -> int:
    """Return how much later than clients' reports lines may come. Reports are in another topic, and wait for lines.

    It is 0 while the job catches up: then it is not known whether the lines are late or this machine's clock is wrong.
    """
    behind_ms = memory.behind_ms or 0
    return behind_ms if 0 < behind_ms <= LATE_MS else 0
