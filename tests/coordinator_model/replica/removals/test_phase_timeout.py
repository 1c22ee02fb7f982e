"""When the timeout of a join phase was due, for each possible start."""

import pytest

from coordinator_model.brokers.timer_reset import TimerReset
from coordinator_model.replica.removals.phase_timeout import possible_ends_ms
from coordinator_model.replica.removals.phases import EndedPhase, JoinsSeen, PhaseEnd, PhaseStart
from coordinator_model.states import Cause
from tests.coordinator_model.replica.test_session_timer import context

LIMIT_MS = 8_000
MOVE = TimerReset(93_000, 93_000, Cause.COORDINATOR_MOVED, "broker-3")
# first sign of the phase, arrival of the first JoinGroup, ends of sessions, the move -> when the timeout was due
DUES = {
    "from its first sign": (91_000, 92_000, (), None, [99_000]),
    "from its first JoinGroup, which was told later than another sign": (98_500, 91_600, (), None, [106_500, 99_600]),
    "from an end of a session before its first sign": (95_000, 96_000, (94_000,), None, [103_000, 102_000]),
    "at a new coordinator, from a JoinGroup there, not from a sign before": (91_000, 92_000, (), MOVE, [100_000]),
    "at a new coordinator that was asked to join before its predecessor ended": (
        98_500,
        91_600,
        (),
        MOVE,
        [106_500, 99_600],
    ),
}


@pytest.mark.parametrize("name", DUES)
def test_the_timeout_of_a_join_phase_was_due(name):
    started_ms, joined_ms, sessions_ms, move, dues_ms = DUES[name]
    phase = EndedPhase(
        began_after_ms=90_000,
        started=PhaseStart(started_ms, None),
        ended=PhaseEnd(9, 99_600),
        joins=JoinsSeen(first_ms=joined_ms, last_ms=joined_ms, skipped=False),
        removed_ms=99_600,
        limit_ms=LIMIT_MS,
    )
    assert possible_ends_ms(phase, sessions_ms, context(*([move] if move else []))) == dues_ms
