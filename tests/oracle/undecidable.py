"""Disagreements that nobody outside the coordinator can decide: narrow classes, each justified in docs/truth.md.

They are counted apart and printed, never left out silently.
"""

from collections.abc import Callable, Collection
from typing import Any

from coordinator_model.brokers.coordinator_check import REFUSALS
from coordinator_model.decode.source_row import OFFSETS, TELEMETRY
from coordinator_model.replica.removals.judge import MOVE_KNOWN_MS
from coordinator_model.thresholds import Thresholds
from streaming.embedded.truth import LEFT, REBALANCE_TIMEOUT, SESSION_EXPIRED, TruthEvent
from tests.oracle.life import Life, Look
from tests.oracle.shown import (
    HELD_MS,
    JOIN_GROUP,
    SHIPPED_MS,
    announces,
    arrived_at,
    begin_with_a_newcomer,
    came_back_ms,
    coordinates,
    ends_a_phase,
    has_loaded,
    has_one_timeout,
    is_accepted,
    is_beat_of,
    is_heartbeat_of,
    is_modern_beat_of,
    is_named,
    lines_of,
    session_end_ms,
    session_timeout_ms,
    shows_nothing,
    took,
)
from tests.support.pauses import TOLERANCE_MS

MISSING, CAUSE, UNKNOWN, OFF = "missing", "cause", "unknown", "off"
LOADED_UNSEEN = "a load that nothing shows yet"
MOVE_IS_RECENT_MS = 20_000
SAME_INSTANT_MS = 2
WOKE_MS = 1_000
"""How long after the end of a pause a timer may run that was due in it."""
TRAILING_MS = 2_000
PHASES = ("rebalance", "generation", "empty", "coordinator-unloaded")
NO_LIST = b'"members":[]'
"""Only the leader's JoinGroup answer lists the members."""
HEARTBEAT = b'HEARTBEAT"'

Removal = tuple[str, str, str, int, int | None]
"""What differs, the rule in the log, the member id, the instant of the removal in the log, and that of the monitor."""


def class_of(life: Life, what: str, rule: str, member_id: str, truth_ms: int | None, told_ms: int | None) -> str | None:
    """Return the class of a disagreement; None: the monitor is wrong."""
    if truth_ms is None or not member_id:
        return None
    removal = (what, rule, member_id, truth_ms, told_ms)
    return next((name for name, belongs in CLASSES.items() if belongs(life, removal)), None)


def class_of_view(life: Life, look: Look, group: str) -> str | None:
    """Return the class of a view that differs from a group at a quiet moment; None: the monitor is wrong.

    A coordinator had announced a generation that was never written, so a classic group fell back to its last record
    when it was loaded. Nothing showed that load by then: no line, no record and no metadata. An answer 25 to a member
    whose session had ended shows nothing. The members' sessions and the join phase may not have ended yet, so even the
    coordinator that had announced the generation need not have written that the group is empty.
    """
    live = next((each for each in look.groups if each["group"] == group), None)
    loads = (event.at_ms for event in life.truth if event.kind == "coordinator-loaded" and event.at_ms <= look.at_ms)
    lines = [line for line in lines_of(life) if line["at_ms"] <= look.at_ms]
    shown = [row.timestamp_ms for row in life.rows[: look.rows] if row.source != TELEMETRY]
    shown += [line["at_ms"] for line in lines if not _is_of_an_expired(life, line)]
    loaded_ms, shown_ms = max(loads, default=0), max(shown, default=0)
    skew_ms = max(life.plan.clock_offsets_ms) - min(life.plan.clock_offsets_ms)
    if live is None or live["type"] != "classic" or loaded_ms <= shown_ms + skew_ms:
        return None
    joins = [line for line in lines if line["requestHeader"]["requestApiKeyName"] == "JOIN_GROUP"]
    own = [line["response"] for line in joins if line["request"].get("groupId", group) == group]
    announced = max((join.get("generationId", -1) for join in own if join.get("errorCode") == 0), default=-1)
    clients = life.plan.clients
    last_ms = shown_ms + max(c.session_ms for c in clients) + max(c.rebalance_ms for c in clients)
    return LOADED_UNSEEN if live["generation"] < announced and look.at_ms <= last_ms else None


def _is_of_an_expired(life: Life, line: dict[str, Any]) -> bool:
    """Tell whether a line answers 25 to a member whose session had ended, going by its last accepted request."""
    member_id = line["request"].get("memberId")
    if line["response"].get("errorCode") != 25 or not member_id:
        return False
    end_ms = session_end_ms(life, member_id, line["at_ms"])
    return end_ms is not None and end_ms <= line["at_ms"]


def _phase_goes_on(life: Life, removal: Removal) -> bool:
    """A classic member expired in a join phase that the life's end cut off: no answer and no record showed it in time.

    What shows it only in the last two seconds does not count: a late LeaveGroup line may explain the removal. If
    several expired at once, followers' answers show that the phase ended, but not which of them had expired: one may
    have joined though its JoinGroup has no line, because its client died.
    """
    what, _, member_id, at_ms, _ = removal
    classic = what == MISSING and any(client.protocol == "classic" for client in life.plan.clients)
    classic = classic and not any(is_modern_beat_of(line, member_id) for line in lines_of(life))
    end_ms = life.plan.start_ms + life.plan.until_ms - TRAILING_MS
    shown = [r for r in life.rows if at_ms <= r.timestamp_ms <= end_ms and ends_a_phase(r, member_id)]
    expired = [event for event in life.truth if (event.kind, event.at_ms) == (SESSION_EXPIRED, at_ms)]
    if len(expired) > 1:
        shown = [row for row in shown if JOIN_GROUP not in (row.value or b"") or NO_LIST not in (row.value or b"")]
    return classic and not shown


def _never_announced(life: Life, removal: Removal) -> bool:
    """A newcomer was removed before any record or accepted answer named it: only an answer 79 had given out its id.

    It is missed, or reported with an unknown cause.
    """
    what, _, member_id, at_ms, _ = removal
    before = (row for row in life.rows if row.timestamp_ms <= at_ms)
    return what in (MISSING, UNKNOWN) and not any(announces(row, member_id.encode()) for row in before)


def _unseen_coordinator(life: Life, removal: Removal) -> bool:
    """Without metadata: the coordinator that removed the member answered nobody as such from its load until long after.

    Answers 14, 15 and 16 do not count: any broker gives them, also when a write has timed out.
    """
    what, _, member_id, at_ms, _ = removal
    if what != MISSING or life.plan.metadata_ms:
        return False
    by = _removed_by(life, member_id, at_ms)
    loads = [event for event in life.truth if event.kind == "coordinator-loaded" and event.at_ms <= at_ms]
    if not loads or loads[-1].broker not in by:
        return False
    from_ms, until_ms = loads[-1].at_ms, at_ms + MOVE_KNOWN_MS
    own = (row for row in life.rows if row.source == TELEMETRY and (row.key or b"").decode() in by)
    return not any(from_ms <= row.timestamp_ms <= until_ms and coordinates(row) for row in own)


def _overlapping_coordinators(life: Life, removal: Removal) -> bool:
    """The removal is reported with an unknown cause, shortly after a move whose time is not known.

    The new coordinator started all session timers when it loaded the groups. Its predecessor answered until after that,
    or nobody asks who leads, or the brokers that were asked did not know it yet. The time of the load decides whether a
    session had ended, or the member had missed a join phase, or had left; no line and no record shows it. It does not
    decide that if the member was heard by the new coordinator once that had loaded them.
    """
    what, _, member_id, at_ms, _ = removal
    loads = [event for event in life.truth if event.kind == "coordinator-loaded" and event.at_ms <= at_ms]
    if what != UNKNOWN or len(loads) < 2 or at_ms - loads[-1].at_ms > MOVE_IS_RECENT_MS:
        return False
    load = loads[-1]
    if _was_heard_since(life, load, member_id, at_ms):
        return False
    others = (row for row in life.rows if row.source == TELEMETRY and (row.key or b"").decode() != load.broker)
    since = (row for row in others if load.at_ms <= row.timestamp_ms <= at_ms)
    return not is_named(life, load.broker, load.at_ms, at_ms) or any(
        coordinates(row) or took(row, load.at_ms) for row in since
    )


def _was_heard_since(life: Life, load: TruthEvent, member_id: str, at_ms: int) -> bool:
    """Tell whether a coordinator accepted a member's heartbeat when its answers had shown that it had loaded.

    A SyncGroup that is answered at once restarts no session.
    """
    term = [line for line in lines_of(life) if line["broker"] == load.broker and load.at_ms <= line["at_ms"] <= at_ms]
    shown_ms = min((line["at_ms"] - line["totalTimeMs"] for line in term if has_loaded(line)), default=at_ms)
    return any(is_heartbeat_of(line, member_id) and line["at_ms"] > shown_ms for line in term)


def _expired_or_replaced(life: Life, removal: Removal) -> bool:
    """A static member came back shortly after a move whose time is not known: it was replaced, or had expired before.

    Its successor's JoinGroup is the first request that shows a join phase at the new coordinator: there was no answer
    25 or 27 before. Whether an expired session began the phase depends on when that coordinator loaded.
    """
    what, rule, member_id, at_ms, told_ms = removal
    lines = [line for line in lines_of(life) if abs(line["at_ms"] - at_ms) <= MOVE_IS_RECENT_MS]
    back_ms = min((ms for ms in came_back_ms(lines, member_id) if ms > at_ms), default=None)
    if what != MISSING or back_ms is None:
        return False
    shown = (line for line in lines if at_ms <= line["at_ms"] <= back_ms)
    undecided = not any(line["response"].get("errorCode") in (25, 27) for line in shown)
    return undecided and _overlapping_coordinators(life, (UNKNOWN, rule, member_id, at_ms, told_ms))


def _expired_as_it_woke(life: Life, removal: Removal) -> bool:
    """A static member's session was due in a short pause, and its successor came as the coordinator woke.

    The coordinator runs the timer and handles the JoinGroup at once. It was in a join phase, so if the JoinGroup had
    been first, every line and record would be the same. A short pause cannot be told from a busy coordinator.
    """
    what, rule, member_id, at_ms, _ = removal
    due_ms, by = session_end_ms(life, member_id, at_ms), _removed_by(life, member_id, at_ms)
    woke_ms = [
        b for a, b in _short_pauses(life, by) if due_ms is not None and a <= due_ms < b and abs(at_ms - b) <= HELD_MS
    ]
    if what != MISSING or rule != SESSION_EXPIRED or not woke_ms:
        return False
    before = [e.kind for e in life.truth if e.broker in by and e.kind in PHASES and e.at_ms <= (due_ms or 0)]
    came = any(abs(ms - woke_ms[0]) <= SHIPPED_MS for ms in came_back_ms(list(lines_of(life)), member_id))
    return came and before[-1:] == ["rebalance"]


def _nobody_was_heard(life: Life, removal: Removal) -> bool:
    """The removal is reported with an unknown cause, and no heartbeat of anybody was accepted since the member joined.

    A filter on the broker's logger that hides all heartbeats looks the same, and then the member may have been alive.
    """
    what, _, member_id, at_ms, _ = removal
    named_ms = (row.timestamp_ms for row in life.rows if announces(row, member_id.encode()))
    joined_ms = min(named_ms, default=at_ms)
    if joined_ms >= at_ms:
        return False
    since = (
        row.value or b"" for row in life.rows if joined_ms <= row.timestamp_ms <= at_ms and row.source == TELEMETRY
    )
    return what == UNKNOWN and not any(HEARTBEAT in value and is_accepted(value) for value in since)


def _died_with_its_coordinator(life: Life, removal: Removal) -> bool:
    """A classic member that no record ever named expired in a join phase that its coordinator did not live to end.

    No answer showed who was a member, and the next coordinator has only the log, where the member never was. If the
    member's own expiry began the phase, the case is not in this class: the others were told to rejoin. But it is if the
    coordinator answered nobody any more: had it been unloaded just before, the same would be visible.
    """
    what, _, member_id, at_ms, _ = removal
    if what != MISSING or any(row.source == OFFSETS and member_id.encode() in (row.value or b"") for row in life.rows):
        return False
    by = _removed_by(life, member_id, at_ms)
    own = [event for event in life.truth if event.broker in by and event.kind in PHASES]
    until = next((event for event in own if event.kind == "coordinator-unloaded" and event.at_ms > at_ms), None)
    if until is None:
        return False
    if shows_nothing(life, by, at_ms, until.at_ms):
        return True
    since = next((event for event in reversed(own) if event.at_ms <= at_ms), None)
    began = since is not None and since.kind == "rebalance" and since.at_ms < at_ms
    return began and next(event for event in own if event.at_ms > at_ms) is until


def _may_have_outlasted_its_coordinator(life: Life, removal: Removal) -> bool:
    """A session ended that had begun when its coordinator loaded the group, and nobody was answered any more.

    The coordinator may also have loaded so late that it was unloaded before the session ended: no line and no record
    shows before that it had loaded, and metadata did not name it. A loading coordinator answers heartbeats with 0
    (``GroupCoordinatorService.heartbeat``).
    """
    what, _, member_id, at_ms, _ = removal
    by = _removed_by(life, member_id, at_ms)
    own = [event for event in life.truth if event.broker in by]
    load = next((e for e in reversed(own) if e.kind == "coordinator-loaded" and e.at_ms <= at_ms), None)
    until = next((e for e in own if e.kind == "coordinator-unloaded" and e.at_ms > at_ms), None)
    if what != MISSING or load is None or until is None:
        return False
    term = [line for line in lines_of(life) if line["broker"] in by and load.at_ms <= line["at_ms"] <= until.at_ms]
    written_ms = [row.timestamp_ms for row in life.rows if row.source == OFFSETS]
    written_ms = [ms for ms in written_ms if load.at_ms <= ms <= until.at_ms]
    quiet = all(line["response"].get("errorCode") in REFUSALS for line in term if line["at_ms"] >= at_ms)
    named = any(is_named(life, broker, load.at_ms, until.at_ms) for broker in by)
    told = named or not quiet or max(written_ms, default=0) >= at_ms
    if told or any(is_beat_of(line, member_id) for line in term):
        return False
    shown_ms = (line["at_ms"] - line["totalTimeMs"] for line in term if has_loaded(line))
    loaded_by_ms = min((*written_ms, *shown_ms), default=until.at_ms)
    timeout_ms = session_timeout_ms(life, member_id, at_ms)
    return timeout_ms is not None and loaded_by_ms + timeout_ms > until.at_ms and begin_with_a_newcomer(life, term)


def _left_a_deposed_coordinator(life: Life, removal: Removal) -> bool:
    """A classic member sent its leave to a deposed coordinator, and the next coordinator let its session end.

    The client did leave. The monitor concludes that from its LeaveGroup, which was answered like one that waited for a
    write. What came first is known by the clock of the life, because the brokers' clocks differ.
    """
    what, _, member_id, at_ms, _ = removal
    by = _removed_by(life, member_id, at_ms)
    said = (event for event in life.truth if event.kind == LEFT and event.member_id == member_id)
    left = (event for event in said if "LeaveGroup" in event.line)  # a leave by heartbeat is visible in its tombstones
    loads = [event for event in life.truth if event.kind == "coordinator-loaded" and event.broker in by]
    loads_ms = [load.at_ms - _ahead_ms(life, load.broker) for load in loads]
    return what == MISSING and any(
        event.at_ms <= at_ms + MOVE_IS_RECENT_MS
        and event.broker not in by
        and any(load_ms <= event.at_ms - _ahead_ms(life, event.broker) for load_ms in loads_ms)
        for event in left
    )


def _two_timers_at_once(life: Life, removal: Removal) -> bool:
    """Session and rebalance timeout are equal, as they always were before JoinGroup v1: both ran out at once.

    Or they differ, and the last accepted heartbeat came one session timeout before the removal. A SyncGroup that the
    next join phase answers counts as accepted, too (``GroupMetadataManager.resetAndPropagateAssignmentWithError``).
    """
    what, _, member_id, at_ms, told_ms = removal
    if what != CAUSE or told_ms is None or abs(told_ms - at_ms) > SAME_INSTANT_MS:
        return False
    end_ms = session_end_ms(life, member_id, at_ms)
    ended = end_ms is not None and abs(end_ms - at_ms) <= SAME_INSTANT_MS
    return ended or any(has_one_timeout(row, member_id) for row in life.rows)


def _removed_by(life: Life, member_id: str, at_ms: int) -> set[str]:
    """Return which brokers removed a member at an instant."""
    return {event.broker for event in life.truth if (event.member_id, event.at_ms) == (member_id, at_ms)}


def _began_unseen(life: Life, removal: Removal) -> bool:
    """Both timers ran out in a short pause, in a join phase whose JoinGroup or LeaveGroup no line shows.

    A client that asks again to join on another connection is answered once: its first JoinGroup, which began the phase,
    has no line. So nobody knows when the phase's timeout was due, and a short pause cannot be told from a busy
    coordinator.
    """
    what, rule, member_id, at_ms, told_ms = removal
    if what != CAUSE or rule != REBALANCE_TIMEOUT or told_ms is None:
        return False
    slept = any(a <= told_ms <= b <= at_ms <= b + WOKE_MS for a, b in _short_pauses(life))
    return slept and _has_no_start(life, _removed_by(life, member_id, at_ms), at_ms)


def _began_unseen_after_a_load(life: Life, removal: Removal) -> bool:
    """A session that had begun when its coordinator loaded the group ended in a join phase that began unseen.

    Or it may have ended at the instant at which that phase's timeout removed the member. As in the class before, nobody
    knows when that timeout was due. The session's end is known within an interval only, because no line shows when the
    coordinator loaded.
    """
    what, rule, member_id, at_ms, told_ms = removal
    if what != CAUSE or told_ms is None or abs(told_ms - at_ms) > SAME_INSTANT_MS:
        return False
    by = _removed_by(life, member_id, at_ms)
    loads_ms = [event.at_ms for event in life.truth if event.kind == "coordinator-loaded" and event.broker in by]
    restarted_ms = at_ms - (session_timeout_ms(life, member_id, at_ms) or 0)
    if rule == SESSION_EXPIRED:
        restarted = any(abs(load_ms - restarted_ms) <= SAME_INSTANT_MS for load_ms in loads_ms)
    else:
        load_ms = max((ms for ms in loads_ms if ms <= at_ms), default=None)
        term = [line for line in lines_of(life) if line["broker"] in by and (load_ms or 0) <= line["at_ms"] <= at_ms]
        heard = any(is_beat_of(line, member_id) for line in term)
        restarted = load_ms is not None and not heard and _may_have_loaded_at(life, restarted_ms, load_ms, term)
    return restarted and _has_no_start(life, by, at_ms)


def _may_have_loaded_at(life: Life, at_ms: int, load_ms: int, term: list[dict[str, Any]]) -> bool:
    """Tell whether a coordinator may have loaded at an instant, given when it did, and the lines of its term.

    It had loaded before its first answer and its first record that show it, and after its predecessor's last record.
    """
    written_ms = [row.timestamp_ms for row in life.rows if row.source == OFFSETS]
    before_ms = max((ms for ms in written_ms if ms < load_ms), default=0)
    shown_ms = [line["at_ms"] - line["totalTimeMs"] for line in term if has_loaded(line)]
    return before_ms <= at_ms <= min(shown_ms + [ms for ms in written_ms if ms >= load_ms], default=at_ms)


def _dated_by_another_clock(life: Life, removal: Removal) -> bool:
    """The end of a session that began with a load is reported too late: the predecessor's clock was ahead.

    The predecessor seems to have coordinated after the load, and no line shows how far the brokers' clocks differ. The
    reported end is still one that the new coordinator's own answers allow.
    """
    what, rule, member_id, at_ms, told_ms = removal
    by = _removed_by(life, member_id, at_ms)
    loads = [e for e in life.truth if e.kind == "coordinator-loaded" and e.broker in by and e.at_ms <= at_ms]
    timeout_ms = session_timeout_ms(life, member_id, at_ms)
    if what != OFF or rule != SESSION_EXPIRED or told_ms is None or not loads or timeout_ms is None:
        return False
    load_ms, ahead_ms = loads[-1].at_ms, _ahead_ms(life, loads[-1].broker)
    lines = list(lines_of(life))
    own = [line for line in lines if line["broker"] in by and load_ms <= line["at_ms"] <= at_ms]
    shown_ms = min((line["at_ms"] - line["totalTimeMs"] for line in own if has_loaded(line)), default=at_ms)
    before = [line for line in lines if line["at_ms"] - _ahead_ms(life, line["broker"]) <= load_ms - ahead_ms]
    answered_ms = [line["at_ms"] for line in before if line["response"].get("errorCode") not in REFUSALS]
    contradicted = max(answered_ms, default=0) > load_ms + TOLERANCE_MS
    began_with_it = abs(load_ms + timeout_ms - at_ms) <= SAME_INSTANT_MS
    return contradicted and began_with_it and at_ms < told_ms <= shown_ms + timeout_ms


def _ahead_ms(life: Life, broker: str) -> int:
    """Return how far a broker's clock is ahead."""
    return life.plan.clock_offsets_ms[int(broker.removeprefix("broker-")) - 1]


def _has_no_start(life: Life, by: set[str], at_ms: int) -> bool:
    """Tell whether no line shows the JoinGroup or LeaveGroup that began a broker's join phase of an instant."""
    begun = (event for event in life.truth if event.kind == "rebalance" and event.broker in by)
    signs = [event.at_ms for event in begun if event.at_ms < at_ms]
    return bool(signs) and not any(arrived_at(row, signs[-1]) for row in life.rows)


def _short_pauses(life: Life, of: Collection[str] | None = None) -> list[tuple[int, int]]:
    """Return the start and end of each pause, of some brokers or of any, too short to be told from a busy broker."""
    events = [(event.do, event.who, life.plan.start_ms + event.at_ms) for event in life.plan.events]
    began = [(who, at_ms) for do, who, at_ms in events if do == "pause" and (of is None or f"broker-{who}" in of)]
    ended = [(who, at_ms) for do, who, at_ms in events if do == "resume"]
    pairs = [(from_ms, until_ms) for who, from_ms in began for other, until_ms in ended if who == other]
    return [(a, b) for a, b in pairs if 0 < b - a <= Thresholds().progress_gap_ms]


CLASSES: dict[str, Callable[[Life, Removal], bool]] = {
    "the join phase went on past the end": _phase_goes_on,
    "a newcomer that nothing had named": _never_announced,
    "a coordinator that nobody saw": _unseen_coordinator,
    "a cause that depends on when a coordinator loaded": _overlapping_coordinators,
    "a static member that came back after a move": _expired_or_replaced,
    "a static member that came back as its coordinator woke": _expired_as_it_woke,
    "two timers in one instant": _two_timers_at_once,
    "two timers in a short pause": _began_unseen,
    "two timers after a load": _began_unseen_after_a_load,
    "a load that only another broker's clock dates": _dated_by_another_clock,
    "a join phase that died with its coordinator": _died_with_its_coordinator,
    "a session that may have outlasted its coordinator": _may_have_outlasted_its_coordinator,
    "a leave sent to a deposed coordinator": _left_a_deposed_coordinator,
    "never heard, nor was anybody since it joined": _nobody_was_heard,
}
