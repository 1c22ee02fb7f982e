from coordinator_model.decode.telemetry.instants import instants

T_MS = 1_790_000_000_000


def test_an_answer_precedes_its_line_and_what_was_applied_precedes_a_stalled_write():
    at = instants(T_MS, (12.0, 5.0, 1.0, 2.0))
    assert (at.arrival_ms, at.answer_ms, at.applied_ms, at.remote_ms) == (T_MS - 12, T_MS - 3, T_MS - 8, 5)


def test_the_times_behind_the_answer_are_added_up_before_they_are_rounded():
    assert instants(T_MS, (0.0, 0.0, 0.4, 0.4)).answer_ms == T_MS - 1
