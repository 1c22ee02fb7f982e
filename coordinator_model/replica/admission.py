"""Which events are applied to a group. An unknown group begins with a record, or an answer that only members get.

Refusals prove nothing about a group: Kafka answers them to anybody, for any group id. So 4,000 refused requests under
4,000 ids are 4,000 lines and no group. Sources: ``KafkaApis`` (30 before all else), ``GroupCoordinatorService`` (24 and
26 by the request alone, 14 to 16 by the partition), ``GroupMetadataManager`` (22, 25, 69, 82, 110: the group has no
such member; 79 gives an id to a stranger, who may never come back).
"""

from coordinator_model.errors import HEARD
from coordinator_model.events import (
    ClientPoll,
    ClientSeen,
    ConsumerHeartbeat,
    Heartbeat,
    JoinAnswered,
    MetricsExported,
    MetricsPushed,
    OffsetCommitted,
    RecordRead,
)
from coordinator_model.replica import left_alive, metrics_push
from coordinator_model.replica.client_report import is_believed
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.replay import GroupEvent

UNKNOWN_GROUP = "unknown_group"
NOT_BELIEVED = "reports_not_believed"
PUSH_NOT_BELIEVED = "pushes_not_believed"
NOT_AWAITED = "clients_seen"
"""Signs of life of clients that have not left: members, clients that are about to join, strangers."""
SET_ASIDE = "group_set_aside"


def why_not(replica: GroupReplica | None, event: GroupEvent, *, loading: bool) -> str | None:
    """Return the name under which an event is counted that is not applied to its group; None: it is applied.

    ``loading``: its coordinator may be loading the log. Then it answers 0 to classic heartbeats from anybody.
    """
    if replica is None or replica.deleted:
        return None if makes_known(event, loading=loading) else UNKNOWN_GROUP
    if isinstance(event, ClientPoll) and not is_believed(replica, event):
        return NOT_BELIEVED
    if isinstance(event, ClientSeen) and not left_alive.tells(replica, event):
        return NOT_AWAITED
    if isinstance(event, MetricsPushed | MetricsExported) and not metrics_push.is_believed(replica, event):
        return PUSH_NOT_BELIEVED
    waits = replica.set_aside is not None and replica.set_aside.resumed_ms is None
    return SET_ASIDE if waits and not isinstance(event, RecordRead) else None


def makes_known(event: GroupEvent, *, loading: bool) -> bool:
    """Tell whether an event about a group that is not known makes it known.

    A tombstone or an accepted leave only ends something that was not known. A client's report is not a broker's answer.
    A SyncGroup says too little about a member whose JoinGroup was not seen.
    """
    match event:
        case RecordRead():
            return event.value is not None
        case OffsetCommitted():
            return not event.tombstone
        case Heartbeat():
            blind = loading and event.error == 0 and not event.kip848
            return event.error in HEARD and not blind
        case JoinAnswered():
            return event.error == 0
        case ConsumerHeartbeat():
            return event.error == 0 and event.request_epoch >= 0
        case _:
            return False
