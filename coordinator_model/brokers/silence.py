"""For how long no line of the coordinator has come, by another clock: this machine's, or in a capture that of a peer.

Clocks differ, so the instants of two clocks are never compared. A silence is what another clock has advanced since the
coordinator's newest line came, or since it became the coordinator, if that is later.

In a live run only this machine's clock counts. A peer's lines show nothing: they may have been read further than the
coordinator's, or be dated by a clock that is ahead. A capture has no clock of this machine, but all its lines are read.
"""

from coordinator_model.brokers.one_clock import BrokerClock


def silence_by_peer_ms(since_ms: int, peer: BrokerClock) -> int:
    """Return the silence by the clock of a peer whose newest line has just been applied.

    ``since_ms``: since when a line of the coordinator is awaited, by its own clock. The peer's first line since then is
    the beginning: what it wrote before may be older than a pause of its own.
    """
    if peer.quiet_since_ms != since_ms:
        peer.quiet_since_ms, peer.quiet_seen_ms = since_ms, peer.line_ms
    return peer.line_ms - peer.quiet_seen_ms


def silence_by_wall_ms(since_ms: int, coordinator: BrokerClock, wall_ms: int, behind_ms: int) -> int:
    """Return the silence by this machine's clock.

    ``since_ms``: since when a line of the coordinator is awaited: its newest line that was read, or since when it
    coordinates if later. ``behind_ms``: how far the newest line of any broker was behind that clock. While the job
    catches up, the coordinator may have been read further than the others: then nothing is awaited from it yet.
    """
    least_ms = behind_ms - coordinator.stepped_ms
    own_ms = least_ms if coordinator.behind_ms is None else max(coordinator.behind_ms, least_ms)
    return wall_ms - own_ms - since_ms
