"""What the rules about rebalances must remember of a group: when it rebalanced, and which generations never were."""

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.notes import Rebalance
from coordinator_model.states import GroupState

MAX_REBALANCES = 64
"""Rebalances remembered a group; a storm of more is a storm all the same."""
MAX_ABORTED = 16
SETTLED = (GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD)


def note(replica: GroupReplica, before: int, at_ms: int) -> None:
    """Note what an event did to the generation, which was ``before``: the first that is seen is no rebalance."""
    if replica.generation > before >= 0:
        replica.rebalances = [*replica.rebalances[-(MAX_REBALANCES - 1) :], Rebalance(at_ms, replica.generation)]
    if replica.state in SETTLED:
        replica.announced = None
        replica.aborted.clear()
    elif replica.state is GroupState.COMPLETING_REBALANCE and replica.announced != replica.generation:
        if replica.announced is not None:
            replica.aborted = [*replica.aborted[-(MAX_ABORTED - 1) :], Rebalance(at_ms, replica.announced)]
        replica.announced = replica.generation
