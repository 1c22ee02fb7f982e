"""Which accepted heartbeats prove that the coordinator answered, and from when on they count."""

from coordinator_model.brokers.accepted_heartbeats import MOST, AcceptedHeartbeats


def noted(*heartbeats):
    accepted = AcceptedHeartbeats()
    for line_ms, arrival_ms in heartbeats:
        accepted.note(line_ms, arrival_ms)
    return accepted


def test_a_heartbeat_counts_once_its_line_is_a_grace_old():
    accepted = noted((1_000, 990), (2_000, 1_980))
    settled = [accepted.settled_arrival_ms(at_ms, 500) for at_ms in (1_499, 1_500, 2_499, 2_500)]
    assert settled == [0, 990, 990, 1_980]


def test_a_heartbeat_that_arrived_earlier_than_one_before_it_proves_no_less():
    assert noted((1_000, 990), (2_000, 100)).settled_arrival_ms(9_000, 500) == 990


def test_at_most_ten_heartbeats_a_second_are_kept_and_at_most_those_of_a_minute():
    assert len(noted(*((at_ms, at_ms) for at_ms in range(0, 1_000, 10))).kept) == 10
    assert len(noted(*((at_ms, at_ms) for at_ms in range(0, 200_000, 100))).kept) <= MOST
