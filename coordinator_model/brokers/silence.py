"""For how long no line of the coordinator has come, by another clock: a peer's, or that of this machine.

Clocks differ, so the instants of two clocks are never compared. A silence is what another clock has advanced since the
coordinator's newest line came.
"""

from coordinator_model.brokers.broker_clock import BrokerClock


def silence_by_peer_ms(coordinator: BrokerClock, peer: BrokerClock) -> int:
    """Return the silence by the clock of a peer whose newest line has just been applied.

    The peer's first line since the coordinator's newest one is the beginning. So the peer must have been heard
    throughout the silence: if it paused itself, its clock shows nothing.
    """
    if peer.quiet_since_ms != coordinator.line_ms:
        peer.quiet_since_ms, peer.quiet_seen_ms = coordinator.line_ms, peer.line_ms
    return peer.line_ms - peer.quiet_seen_ms


def silence_by_wall_ms(coordinator: BrokerClock, wall_ms: int, behind_ms: int) -> int:
    """Return the silence by this machine's clock.

    ``behind_ms``: how far the newest line of any broker was behind that clock. It is used as long as no line of the
    coordinator has been read since the state was that of an older monitor.
    """
    own_ms = behind_ms if coordinator.behind_ms is None else coordinator.behind_ms
    return wall_ms - own_ms - coordinator.line_ms
