"""Which answers prove that a broker coordinates the group: those that Kafka gives only after its coordinator check.

From Kafka's source: ``KafkaApis.scala`` and ``GroupCoordinator.scala`` of 2.8.0 and 3.9.0 (the Scala coordinator,
where ``validateGroupStatus`` is the check), ``GroupCoordinatorService.java`` and ``GroupMetadataManager.java`` of
3.9.0, 4.2, 4.3 and trunk of 2026-08 (the Java one: ``CoordinatorRuntime.scheduleWriteOperation`` is the check).

Any broker may give the answers that come before the check: authorization (29, 30), unsupported versions (35), an empty
group id (24), a session timeout out of bounds (26; in the Java coordinator only, but a line does not say which one it
was), a SyncGroup without the protocol (23, in ``KafkaApis``), an invalid request (42), an unsupported assignor or
topology (112, 130), and unexpected failures (-1). They prove nothing. Neither does a code that is not in this table.
"""

from collections.abc import Mapping
from enum import Enum

from coordinator_model.errors import Error
from coordinator_model.events import ConsumerHeartbeat, Event, Heartbeat, JoinAnswered, LeaveAnswered, SyncAnswered

WAITED_MS = 50
"""A refusal takes less time than this."""
REFUSALS = frozenset({Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR})

AFTER_CHECK: Mapping[type, frozenset[int]] = {
    Heartbeat: frozenset({0, 22, 25, 27, 82}),
    JoinAnswered: frozenset({0, 23, 25, 27, 79, 81, 82}),
    SyncAnswered: frozenset({0, 22, 25, 27, 82}),
    LeaveAnswered: frozenset({0, 25, 82}),
    # ConsumerGroupHeartbeat, ShareGroupHeartbeat and StreamsGroupHeartbeat
    ConsumerHeartbeat: frozenset({0, 23, 25, 69, 81, 82, 110, 111, 128}),
}
"""Codes by API. ``LeaveGroup`` from version 3 on has a code for each member, which always comes after the check."""
WHILE_LOADING: Mapping[type, frozenset[int]] = {
    Heartbeat: frozenset({0}),
    SyncAnswered: frozenset({27}),
}
"""Answers of AFTER_CHECK that the coordinator of a classic group also gives while it is still loading the group.

``GroupCoordinatorService.heartbeat`` and ``GroupCoordinator.handleHeartbeat`` answer 0 instead of 14, and
``GroupCoordinator.handleSyncGroup`` (Scala) answers 27 instead.
"""


class Proof(Enum):
    """What an answer says about the broker that gave it."""

    REFUSES = "refuses"
    """14, 15, 16: the broker does not coordinate the group now."""
    NOTHING = "nothing"
    """Any broker may give this answer."""
    LEADS = "leads"
    """The broker coordinates the group, or will soon: it may still be loading it."""
    COORDINATES = "coordinates"


def proof(event: Event, parked_ms: int, stalled_write_ms: int) -> Proof:
    """Return what an answer to a request that was parked for ``parked_ms`` proves about the broker.

    A 15 after ``stalled_write_ms`` or more is the end of a stalled write: neither a refusal nor an acceptance. For a
    SyncGroup a short wait is enough, because followers wait for the leader's write.
    """
    error: int = event.error  # type: ignore[union-attr] # the event is an answer
    if error in REFUSALS:
        least_ms = WAITED_MS if isinstance(event, SyncAnswered) else stalled_write_ms
        stalled = error == Error.COORDINATOR_NOT_AVAILABLE and parked_ms >= least_ms
        return Proof.NOTHING if stalled else Proof.REFUSES
    kind = type(event)
    if error not in AFTER_CHECK.get(kind, ()):
        return Proof.NOTHING
    modern = isinstance(event, Heartbeat) and event.kip848
    return Proof.LEADS if error in WHILE_LOADING.get(kind, ()) and not modern else Proof.COORDINATES
