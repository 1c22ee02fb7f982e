"""Where the next record and the replica disagree: the monitor proves itself, or says where it is wrong."""

from coordinator_model.records import RecordType
from coordinator_model.replica.group import GroupReplica
from coordinator_model.states import GroupState

MAX_NAMED = 8


def expected(replica: GroupReplica, event: object) -> set[str] | None:
    """Return whom the record of the generation in its sync phase must list, None where that is not known.

    Known it is once the leader's own list was seen: nobody can come or go before the record without another generation.
    """
    value = getattr(event, "value", None)
    if value is None or getattr(event, "record_type", None) != RecordType.GROUP_METADATA:
        return None
    syncing = replica.state is GroupState.COMPLETING_REBALANCE
    if not syncing or not value["generation"] == replica.generation == replica.listed_generation:
        return None
    return set(replica.members)


def note(replica: GroupReplica, members: set[str] | None, at_ms: int) -> None:
    """Compare what was expected with what the record made of the replica."""
    if members is None or members == replica.members.keys():
        return
    replica.unexpected += 1
    ours, theirs = sorted(members - replica.members.keys()), sorted(replica.members.keys() - members)
    replica.diverged = [at_ms, replica.generation, ours[:MAX_NAMED], theirs[:MAX_NAMED]]
