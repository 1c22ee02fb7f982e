"""For how long no line of the coordinator has come, by another clock: this machine's, or in a capture that of a peer.

Clocks differ, so the instants of two brokers' clocks are never compared. A silence is what another clock has advanced
since the coordinator's newest line came, or since it became the coordinator, if that is later.

In a live run only this machine's clock counts. A peer's lines show nothing: they may have been read further than the
coordinator's, or be dated by a clock that is ahead. A capture has no clock of this machine, but all its lines are read.
"""

from collections.abc import Iterable

from coordinator_model.brokers.one_clock import BrokerClock


def silence_by_peer_ms(since_ms: int, peer: BrokerClock) -> int:
    """Return the silence by the clock of a peer whose newest line has just been applied.

    ``since_ms``: since when a line of the coordinator is awaited, by its own clock. The peer's first line since then is
    the beginning: what it wrote before may be older than a pause of its own.
    """
    if peer.quiet_since_ms != since_ms:
        peer.quiet_since_ms, peer.quiet_seen_ms = since_ms, peer.line_ms
    return peer.line_ms - peer.quiet_seen_ms


def silence_by_wall_ms(
    since_ms: int, coordinator: BrokerClock, brokers: Iterable[BrokerClock], wall_ms: int, behind_ms: int
) -> int:
    """Return the silence by this machine's clock.

    ``since_ms``: since when a line of the coordinator is awaited: its newest line that was read, or since when it
    coordinates if later. While the job catches up, the coordinator may have been read further than the other
    ``brokers``: then nothing is awaited from it yet. ``behind_ms``: how far the newest line of any broker was behind
    that clock. It is used as long as no line of the coordinator has been read.
    """
    if coordinator.behind_ms is None:
        return wall_ms - behind_ms + coordinator.stepped_ms - since_ms
    return wall_ms - coordinator.behind_ms - since_ms - max(0, _late_ms(brokers) - coordinator.late_ms)


def _late_ms(brokers: Iterable[BrokerClock]) -> int:
    """Return how much later than usual lines are, by the best of the brokers that were heard last.

    Each broker is compared with itself, so a wrong clock or a slow shipper counts for nothing. While the job catches
    up, all are late.
    """
    heard = [(broker.heard_wall_ms, -broker.late_ms) for broker in brokers if broker.heard_wall_ms is not None]
    return -max(heard, default=(0, 0))[1]
