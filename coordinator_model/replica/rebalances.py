"""What rules about rebalances remember about a group: when it rebalanced, and which generations were never stable."""

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.notes import Rebalance
from coordinator_model.states import GroupState

MAX_REBALANCES = 64
"""How many rebalances are remembered for a group; this many are a storm already."""
MAX_ABORTED = 16
AT_REST = (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)


def note(replica: GroupReplica, before: int, at_ms: int) -> None:
    """Note whether an event changed the generation, which was ``before``. The first generation seen is no rebalance.

    A generation counts once, though the group seemed to be loaded without it meanwhile: one broker that has two
    addresses looks like two coordinators.
    """
    last = replica.rebalances[-1].generation if replica.rebalances else None
    if replica.generation > before >= 0 and replica.generation != last:
        replica.rebalances = [*replica.rebalances[-(MAX_REBALANCES - 1) :], Rebalance(at_ms, replica.generation)]
    if replica.state in AT_REST:
        replica.announced = None
        replica.aborted.clear()
    elif replica.state is GroupState.COMPLETING_REBALANCE and replica.announced != replica.generation:
        if replica.announced is not None:
            replica.aborted = [*replica.aborted[-(MAX_ABORTED - 1) :], Rebalance(at_ms, replica.announced)]
        replica.announced = replica.generation
