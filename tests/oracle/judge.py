"""The comparison of what the monitor says about a life with its coordinator's log and live groups."""

import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator_model.decode.source_row import TELEMETRY
from coordinator_model.shard.shard import ShardSettings
from coordinator_model.states import MEMBER_REMOVED, Severity
from coordinator_model.thresholds import Thresholds
from streaming.embedded.truth import (
    REBALANCE_TIMEOUT,
    SESSION_EXPIRED,
    TruthEvent,
    missed_rebalances,
    session_expiries,
)
from tests.oracle.clock_steps import (
    PROVEN_MS,
    Span,
    has_stepped,
    is_of_steps,
    is_unproven,
    steps_after,
    steps_ms,
    unseen_ms,
)
from tests.oracle.groups import Difference, difference
from tests.oracle.life import Life, Look
from tests.oracle.monitor import Monitor
from tests.oracle.undecidable import class_of, class_of_view
from tests.support.pauses import TOLERANCE_MS, ended_at_a_pause

AFTER_A_MOVE_MS = 3_000
"""After a load it is known only within an interval when the coordinator restarted its timers."""
MOVE_IS_RECENT_MS = 20_000
SHORT_PAUSE_MS = Thresholds().progress_gap_ms
"""A coordinator that pauses for less cannot be told from a busy one. Its timers that were due run late by that time."""
TRAILING_MS = 2_000
"""What happens this close to the end of a life may have left no trace yet."""
RESTART_EVERY = 8
"""After this many looks the monitor's state is dumped and restored, as at a restart of the job."""
COORDINATOR_PAUSED = "coordinator-paused"
BROKER_FAULTS = ("pause", "crash", "restart", "elect", "stall-writes", "step-clock")
AS_CLOCK_STEPS = "unknown as a clock steps"
LOST_LOOKS = ("put_off", "set_aside")
"""What a shard counts if it gave up on a group: verdicts that were due may never come."""
SAME_INSTANT_MS = 2
MINUTE_MS = 60_000
SAME_REMOVAL_MS = 15_000
"""A report that is further from a removal than this is of another removal of the same member."""


@dataclass(frozen=True)
class Disagreement:
    """One thing that monitor and coordinator see differently. ``what``: missing, extra, cause, off, group, …

    ``unknown``: a removal for a timeout that is reported as ``member-removed``, which means that its cause is unknown.
    """

    what: str
    rule: str
    group: str
    member_id: str
    truth_ms: int | None
    told_ms: int | None
    note: str = ""
    pages: bool = False
    """Whether somebody was paged for it."""

    def __str__(self) -> str:
        return f"{self.what} {self.rule} {self.group} {self.member_id} {self.truth_ms} {self.told_ms} {self.note}"


@dataclass
class Judgement:
    """The disagreements of a life, and how much was compared."""

    disagreements: list[Disagreement]
    compared: Counter[str]
    listed: Counter[str] = field(default_factory=Counter)
    """How many disagreements nobody outside the coordinator can decide, by class (`undecidable.py`)."""


@dataclass(frozen=True)
class _Doubts:
    """What makes instants uncertain: when coordinators loaded, and from when to when brokers were paused."""

    loads_ms: list[int]
    """Without the first load: no session had begun before it."""
    pauses_ms: list[tuple[int, int]]
    start_ms: int = 0
    """When the life began."""
    phase_ms: int = 0
    """How long a join phase may last: what happens in it is seen only at its end."""
    unseen_ms: Span = (0, 0)
    """How far a reported instant may differ because the broker's clock stepped by too little to be seen."""
    restated_ms: tuple[int, ...] = (0,)
    """How far it may differ because that clock has stepped since: what is reported then is by the new clock."""

    def moved(self, at_ms: int) -> bool:
        """Tell whether a coordinator loaded shortly before an instant."""
        return any(0 <= at_ms - load_ms <= MOVE_IS_RECENT_MS for load_ms in self.loads_ms)

    def near(self, at_ms: int, told_ms: int) -> bool:
        """Tell whether a reported instant is near enough to the true one.

        A timer that was due in a short pause runs late. Its deadline is reported, which is before the true instant.
        """
        tolerance_ms = AFTER_A_MOVE_MS if self.moved(at_ms) else TOLERANCE_MS
        least_ms, most_ms = self.unseen_ms
        least_ms -= tolerance_ms + self._delay_ms(at_ms)
        off_ms = told_ms - at_ms
        return any(least_ms <= off_ms - by_ms <= most_ms + tolerance_ms for by_ms in self.restated_ms)

    def lies_within(self, at_ms: int, from_ms: int, until_ms: int) -> bool:
        """Tell whether a removal lies in a reported interval. A timer that was due in a short pause runs late."""
        return from_ms - TOLERANCE_MS <= at_ms <= until_ms + TOLERANCE_MS + self._delay_ms(at_ms)

    def _delay_ms(self, at_ms: int) -> int:
        """Return by how much a timer that ran at an instant can have run late because of a short pause."""
        slept_ms = [b - a for a, b in self.pauses_ms if b - a <= SHORT_PAUSE_MS and a <= at_ms <= b + TOLERANCE_MS]
        return max(slept_ms, default=0)

    def holds(self, at_ms: int, from_ms: int, until_ms: int) -> bool:
        """Tell whether a reported interval is acceptable: it holds the instant near a move, or a pause explains it.

        A removal in a join phase is visible only when the phase ends. If a coordinator loaded meanwhile, by its own
        clock, nothing shows which of the two removed the member.
        """
        later_ms = min(until_ms, at_ms + MOVE_IS_RECENT_MS)
        if not self.moved(at_ms) and not any(at_ms <= load_ms <= later_ms for load_ms in self.loads_ms):
            return ended_at_a_pause(at_ms, from_ms, until_ms, self.pauses_ms)
        held = from_ms - TOLERANCE_MS <= at_ms <= until_ms + TOLERANCE_MS
        return held and self._is_narrow(at_ms, from_ms, until_ms)

    def _is_narrow(self, at_ms: int, from_ms: int, until_ms: int) -> bool:
        """Tell whether an interval around a removal near a move is no wider than it has to be.

        The new coordinator cannot have loaded before the one that it replaced. A removal shows by the end of the join
        phase, and a move soon after it.
        """
        loaded_ms = [load_ms for load_ms in self.loads_ms if load_ms <= at_ms]
        former_ms = max([self.start_ms, *(loaded_ms[:-1] if self.moved(at_ms) else loaded_ms)])
        return former_ms - TOLERANCE_MS <= from_ms and until_ms <= at_ms + self.phase_ms + MOVE_IS_RECENT_MS


@dataclass(frozen=True)
class _Removal:
    """A removal for a timeout in the coordinator's log; it has several instants if it was tried again."""

    rule: str
    group: str
    member_id: str
    at_ms: tuple[int, ...]
    certain: bool
    broker: str
    doubts: _Doubts
    stepped_ms: int = 0
    """How far its broker's clock had stepped by then."""
    as_clock_steps: bool = False
    """Whether that clock stepped during the timeout or just after it. Then the cause may be unknown."""


def judge(life: Life) -> Judgement:
    """Let the monitor read a life; compare at every look and at the end."""
    monitor = Monitor(settings_of(life))
    judgement = Judgement([], Counter())
    try:
        _read(life, monitor, judgement)
        told = monitor.incidents()
    except Exception as error:  # noqa: BLE001 # whatever the model raises is its fault
        where = traceback.extract_tb(error.__traceback__)[-1]
        judgement.disagreements.append(
            Disagreement("crash", "", "", "", None, None, f"{error!r} in {where.filename}:{where.lineno}")
        )
        return judgement
    judgement.disagreements += [
        Disagreement("rejected", "", "", "", None, row.timestamp_ms, row.reason) for row in monitor.rejected
    ]
    judgement.disagreements += [
        Disagreement(name, "", "", "", None, None, f"{number} times")
        for name in LOST_LOOKS
        if (number := monitor.counted(name))
    ]
    judgement.disagreements += disagreements(life, told, judgement.compared)
    return _without_undecidable(life, judgement)


def _without_undecidable(life: Life, judgement: Judgement) -> Judgement:
    """Count disagreements that nobody outside can decide apart from the others."""
    decidable = []
    for each in judgement.disagreements:
        listed = class_of(life, each.what, each.rule, each.member_id, each.truth_ms, each.told_ms)
        judgement.listed.update([listed] if listed else [])
        decidable += [] if listed else [each]
    judgement.disagreements = decidable
    return judgement


def disagreements(life: Life, told: list[dict[str, Any]], compared: Counter[str]) -> list[Disagreement]:
    """Return the differences between the removals in the incidents and those in the coordinator's log."""
    return [*_removals(life, told, compared), *_taken_back(life, told), *_blamed(life, told)]


def _blamed(life: Life, told: Iterable[dict[str, Any]]) -> Iterable[Disagreement]:
    """Yield reports that blame a broker in a life in which nothing happens to any broker."""
    if any(event.do in BROKER_FAULTS for event in life.plan.events):
        return
    for line in told:
        if line["rule"] == COORDINATOR_PAUSED and line["transition"] == "opened":
            pages = line["severity"] == Severity.PAGE
            yield Disagreement("extra", COORDINATOR_PAUSED, "", "", None, _instant(line), line["summary"], pages)


def settings_of(life: Life) -> ShardSettings:
    """Return the monitor's settings for a life: session timeouts of KIP-848, share and streams groups."""
    timeouts = {
        kind: {"": int(life.plan.config.get(f"group.{kind}.session.timeout.ms", 45_000))}
        | {
            group: int(config[f"{kind}.session.timeout.ms"])
            for group, config in life.plan.group_config.items()
            if f"{kind}.session.timeout.ms" in config
        }
        for kind in ("consumer", "share", "streams")
    }
    return ShardSettings(
        cluster="life",
        partitions=1,
        live_from_ms=life.plan.start_ms,
        consumer_session_timeouts_ms=timeouts["consumer"],
        share_session_timeouts_ms=timeouts["share"],
        streams_session_timeouts_ms=timeouts["streams"],
        view_refresh_ms=0,
    )


def _read(life: Life, monitor: Monitor, judgement: Judgement) -> None:
    done, seen, listed = 0, set[tuple[str, str, str]](), set[tuple[str, str]]()
    for number, look in enumerate(life.looks):
        for rows, wall_ms in _batches(life, done, look.rows):
            monitor.read(life.rows[done:rows], wall_ms=wall_ms)
            done = rows
        if number % RESTART_EVERY == 0:
            monitor.restart()
        alone = len(life.plan.clock_offsets_ms) == 1  # no other broker can coordinate
        if monitor.is_up_to_date and (alone or monitor.knows_coordinator(look.broker)):
            judgement.compared["looks"] += 1
            for field, group, member_id, note in _comparable(life, look, monitor):
                undecided = class_of_view(life, look, group)
                if undecided is not None:
                    listed.add((undecided, group))
                elif (field, group, member_id) not in seen:  # it lasts until something changes: report it once
                    judgement.disagreements.append(
                        Disagreement("group", field, group, member_id, look.at_ms, None, note)
                    )
                    seen.add((field, group, member_id))
    judgement.listed.update(name for name, _ in listed)
    for rows, wall_ms in _batches(life, done, len(life.rows)):
        monitor.read(life.rows[done:rows], final=rows == len(life.rows), wall_ms=wall_ms)
        done = rows


def _batches(life: Life, done: int, until: int) -> Iterator[tuple[int, int | None]]:
    """Yield up to which row each batch goes, until a look or the end, and the time by the monitor's clock.

    Only if a clock steps it is read as in a run, with a clock that does not: a replay of one broker has none.
    """
    if not life.plan.clocks_step:
        yield until, None
        return
    yield from ((rows, at_ms) for rows, at_ms in life.reads if done < rows < until)
    yield until, next((at_ms for rows, at_ms in life.reads if rows >= until), life.plan.start_ms + life.plan.until_ms)


def _comparable(life: Life, look: Look, monitor: Monitor) -> Iterator[Difference]:
    """Yield what differs at a quiet moment and can be compared.

    A coordinator starts all session timers as it loads the groups. If it has answered nobody since, nobody outside
    knows of that load, so the ends of sessions are not compared.
    """
    is_heard = _is_heard_since_its_load(life.truth, look, monitor.shard.clock.last_answer_ms)
    is_heard = is_heard and not is_unproven(life.plan, look.life_ms)
    return (found for found in difference(look, monitor, _off_ms(life, look)) if is_heard or found[0] != "deadline")


def _off_ms(life: Life, look: Look) -> Span:
    """Return how far the end of a session may be off because a clock stepped in it."""
    if not life.plan.clocks_step:
        return (0, 0)
    session_ms = _longest_ms(life, SESSION_EXPIRED)
    least_ms, most_ms = unseen_ms(life.plan, look.life_ms, session_ms)
    rough_ms = TOLERANCE_MS if has_stepped(life.plan, look.life_ms, session_ms) else 0
    return least_ms - rough_ms, most_ms + rough_ms


def _is_heard_since_its_load(truth: list[TruthEvent], look: Look, answered_ms: int) -> bool:
    """Tell whether a coordinator whose last answer is of this instant had loaded the groups by then."""
    loads = (event for event in truth if event.kind == "coordinator-loaded" and event.broker == look.broker)
    return answered_ms >= max((event.at_ms for event in loads if event.at_ms <= look.at_ms), default=0)


def _removals(life: Life, told: list[dict[str, Any]], compared: Counter[str]) -> Iterable[Disagreement]:
    removals = list(_logged(life))
    lines = [line for rule in (SESSION_EXPIRED, REBALANCE_TIMEOUT) for line in _told(told, rule, steps_ms(life.plan))]
    pairs = sorted(
        (
            line["rule"] != removal.rule and not _is_at_once(removal, line, at_ms),
            not _is_dated(removal, line, at_ms),
            not removal.certain,  # an uncertain removal need not be reported
            abs(_instant(line) - at_ms),
            index,
            number,
            at_ms,
        )
        for index, removal in enumerate(removals)
        for at_ms in removal.at_ms
        for number, line in enumerate(lines)
        if _may_be_of(removal, line, at_ms, removals)
    )
    paired: set[int] = set()
    used: set[int] = set()
    for *_, off_ms, index, number, at_ms in pairs:
        if index in paired or number in used or (off_ms > SAME_REMOVAL_MS and not _is_only_one(removals[index], lines)):
            continue
        paired.add(index)
        used.add(number)
        removal, line = removals[index], lines[number]
        compared[removal.rule] += 1
        where = (removal.rule, removal.group, removal.member_id, at_ms, _instant(line))
        if line["rule"] != removal.rule:
            yield Disagreement("cause", *where, f"told as {line['rule']}: {line['summary']}")
        elif not _is_dated(removal, line, at_ms):
            yield Disagreement("off", *where, line["evidence"])
        elif not removal.doubts.near(at_ms, _instant(line)):
            compared["dated by an interval"] += 1
            compared["dated by more than a minute"] += _width_ms(line) > MINUTE_MS
    for index, removal in enumerate(removals):
        if index not in paired and removal.certain and _may_show(life, removal):
            unknown = min(_told_as_unknown(removal, told), default=None)
            if unknown is not None and removal.as_clock_steps:
                compared[AS_CLOCK_STEPS] += 1
                continue
            what, at_ms = ("missing", removal.at_ms[0]) if unknown is None else ("unknown", unknown[1])
            yield Disagreement(what, removal.rule, removal.group, removal.member_id, at_ms, None)
    yield from _unpaired([line for number, line in enumerate(lines) if number not in used], removals, told)


def _may_be_of(removal: _Removal, line: dict[str, Any], at_ms: int, removals: list[_Removal]) -> bool:
    """Tell whether a report may be of a removal: it is of its member.

    A report that is far from an uncertain removal, and near to another one that has several instants, is of that one.
    """
    named = (line["group"], line["member_id"]) == (removal.group, removal.member_id)
    return named and (removal.certain or _is_dated(removal, line, at_ms) or not _again(line, removals))


def _is_at_once(removal: _Removal, line: dict[str, Any], at_ms: int) -> bool:
    """Tell whether a report has the instant of a certain removal: then it is of that one, whichever rule it names."""
    return removal.certain and abs(_instant(line) - at_ms) <= SAME_INSTANT_MS


def _may_show(life: Life, removal: _Removal) -> bool:
    """Tell whether a removal was early enough to leave a trace in the life."""
    end_ms = life.plan.start_ms + life.plan.until_ms - TRAILING_MS + removal.stepped_ms
    return removal.at_ms[0] <= min(end_ms, _trace_ms(life, removal))


def _trace_ms(life: Life, removal: _Removal) -> int:
    """Return the latest instant that can have left a trace: the coordinator may stay paused until the life ends."""
    later = (event for event in life.truth if event.kind == "coordinator-loaded" and event.at_ms > removal.at_ms[0])
    brokers = {removal.broker, *(event.broker for event in later)}
    own = (row for row in life.rows if row.source == TELEMETRY and (row.key or b"").decode() in brokers)
    return max((row.timestamp_ms for row in own), default=0) - TRAILING_MS


def _is_only_one(removal: _Removal, lines: list[dict[str, Any]]) -> bool:
    """Tell whether the member's only report has this rule: then it is this removal, however far off."""
    own = [line for line in lines if (line["group"], line["member_id"]) == (removal.group, removal.member_id)]
    return len(own) == 1 and own[0]["rule"] == removal.rule and len(removal.at_ms) == 1


def _unpaired(
    lines: Iterable[dict[str, Any]], removals: list[_Removal], told: Iterable[dict[str, Any]]
) -> Iterator[Disagreement]:
    """Yield reports that match no removal, except repetitions of a removal that the next coordinator did again.

    They page if their incident ever does: a verdict by the clock opens as a warning, and becomes a page later.
    """
    paged = {line["incident_id"] for line in told if line["severity"] == Severity.PAGE}
    for line in lines:
        where = (line["rule"], line["group"], line["member_id"])
        if not _again(line, removals):
            note = f"{line['evidence']} {line['severity']}: {line['summary']}"
            yield Disagreement("extra", *where, None, _instant(line), note, line["incident_id"] in paged)


def _width_ms(line: dict[str, Any]) -> int:
    return int(line["detail"]["deadline_until_ms"] - line["detail"]["deadline_from_ms"])


def _is_dated(removal: _Removal, line: dict[str, Any], at_ms: int) -> bool:
    """Tell whether a removal's instant is reported: within the tolerance, or by an acceptable interval.

    If the report states an interval, it has to hold the instant, however near the deadline is.
    """
    near = removal.doubts.near(at_ms, _instant(line))
    from_ms, until_ms = (line["detail"].get(f"deadline_{end}_ms") for end in ("from", "until"))
    if from_ms is None or until_ms is None:
        return near
    if near:
        return removal.doubts.lies_within(at_ms, from_ms, until_ms)
    return removal.doubts.holds(at_ms, from_ms, until_ms)


def _told_as_unknown(removal: _Removal, told: Iterable[dict[str, Any]]) -> Iterator[tuple[int, int]]:
    """Yield how far a report with an unknown cause is from a removal, and the nearest instant of that removal.

    If there are several reports, the nearest is of this removal: the others may be of other removals of the member. A
    removal in a join phase is visible only when the phase ends. So if the member has one removal and one such report,
    they belong together, however late the report is.
    """
    lines = [
        line
        for line in _told(told, MEMBER_REMOVED)
        if (line["group"], line["member_id"]) == (removal.group, removal.member_id)
    ]
    for line in lines:
        nearest_ms = min(removal.at_ms, key=lambda at_ms, told_ms=line["at_ms"]: abs(told_ms - at_ms))
        is_only_one = len(lines) == len(removal.at_ms) == 1 and line["at_ms"] >= nearest_ms
        off_ms = abs(line["at_ms"] - nearest_ms)
        if is_only_one or off_ms <= SAME_REMOVAL_MS:
            yield off_ms, nearest_ms


def _again(line: dict[str, Any], removals: list[_Removal]) -> bool:
    """Tell whether a report is of a removal with several instants, another of which was paired."""
    return any(len(removal.at_ms) > 1 and _is_of(removal, line) for removal in removals)


def _logged(life: Life) -> Iterable[_Removal]:
    """Yield every removal for a timeout; it is uncertain if another coordinator took over before it can have lasted.

    It is also uncertain if another coordinator had taken over already. A deposed coordinator that does not know it yet
    answers like any other, so its removals may be reported. What came first is known by the clock of the life, because
    the brokers' clocks differ. A removal is dated by its broker's clock, as the monitor dates it.
    """
    differ_ms = {f"broker-{number}": ms for number, ms in enumerate(life.plan.clock_offsets_ms, 1)}
    doubts = _doubts(life, sorted(life.truth, key=lambda event: event.at_ms))
    dated = [
        event._replace(at_ms=event.at_ms - differ_ms[event.broker] - life.stepped.get(event, 0)) for event in life.truth
    ]
    logged = dict(zip(dated, life.truth, strict=True))
    truth = sorted(dated, key=lambda event: event.at_ms)
    for expiry in (*session_expiries(truth), *missed_rebalances(truth)):
        yield _removal([logged[line] for line in expiry.lines], expiry.certain, life, doubts)


def _doubts(life: Life, truth: Iterable[TruthEvent]) -> _Doubts:
    """Return what makes instants uncertain in a life."""
    start_ms, events = life.plan.start_ms, life.plan.events
    paused = [(event.who, start_ms + event.at_ms) for event in events if event.do == "pause"]
    resumed = [(event.who, start_ms + event.at_ms) for event in events if event.do == "resume"]
    until_ms = {at: min((ms for who, ms in resumed if who == at[0] and ms > at[1]), default=at[1]) for at in paused}
    loads = [event.at_ms for event in truth if event.kind == "coordinator-loaded"][1:]
    phase_ms = max((client.rebalance_ms for client in life.plan.clients), default=0)
    return _Doubts(loads, [(from_ms, until_ms[who, from_ms]) for who, from_ms in paused], start_ms, phase_ms)


def _removal(lines: list[TruthEvent], certain: bool, life: Life, doubts: _Doubts) -> _Removal:
    first, instants = lines[0], tuple(line.at_ms for line in lines)
    stepped_ms = life.stepped.get(first, 0)
    removal = _Removal(first.kind, first.group, first.member_id, instants, certain, first.broker, doubts, stepped_ms)
    if not life.plan.clocks_step:
        return removal
    life_ms, longest_ms = first.at_ms - stepped_ms, _longest_ms(life, first.kind)
    doubts = replace(
        doubts,
        unseen_ms=unseen_ms(life.plan, life_ms, longest_ms),
        restated_ms=steps_after(life.plan, life_ms),
    )
    around = has_stepped(life.plan, life_ms + PROVEN_MS, longest_ms + PROVEN_MS)
    return replace(removal, doubts=doubts, as_clock_steps=around)


def _longest_ms(life: Life, rule: str) -> int:
    """Return the longest timeout of a rule in a life."""
    timeouts = (c.session_ms if rule == SESSION_EXPIRED else c.rebalance_ms for c in life.plan.clients)
    return max(timeouts, default=0)


def _told(told: Iterable[dict[str, Any]], rule: str, steps: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Return the openings of a rule, and the lines of an open incident that have another removal's deadline.

    A deadline that moves as far as a clock stepped is the same one by the new clock.
    """
    deadlines_ms: dict[str, int | None] = {}
    lines = []
    for line in told:
        if line["rule"] != rule:
            continue
        before_ms, now_ms = deadlines_ms.get(line["incident_id"]), line["deadline_ms"]
        moved_ms = 0 if before_ms is None or now_ms is None else now_ms - before_ms
        restated = is_of_steps(steps, moved_ms)
        if line["transition"] == "opened" or (moved_ms > AFTER_A_MOVE_MS and not restated):
            lines.append(line)
        if line["transition"] == "opened" or moved_ms > AFTER_A_MOVE_MS or restated:
            deadlines_ms[line["incident_id"]] = now_ms
    return lines


def _instant(line: dict[str, Any]) -> int:
    return int(line["at_ms"] if line["deadline_ms"] is None else line["deadline_ms"])


def _taken_back(life: Life, told: Iterable[dict[str, Any]]) -> Iterable[Disagreement]:
    """Yield reports that were withdrawn, unless the log has the removal: the next coordinator did not know of it."""
    removals = list(_logged(life))
    for line in told:
        if line.get("reason") == "refuted" and not any(_is_of(removal, line) for removal in removals):
            yield Disagreement(
                "refuted", line["rule"], line["group"], line["member_id"], None, _instant(line), line["summary"]
            )


def _is_of(removal: _Removal, line: dict[str, Any]) -> bool:
    named = (removal.rule, removal.group, removal.member_id) == (line["rule"], line["group"], line["member_id"])
    return named and any(_is_dated(removal, line, at_ms) for at_ms in removal.at_ms)
