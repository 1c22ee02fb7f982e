"""The states of a group, as one table: state and event give the next state (`docs/states.md` is made from it).

A monitor sees a coordinator from outside and misses things, so it needs more transitions than Kafka itself allows: an
accepted heartbeat shows that a group is stable, whatever its state was before. If a pair is not in the table, its event
is applied nevertheless, because the coordinator is right, and is counted (``GroupReplica.unexpected``).

Kafka's own tables: ``ClassicGroupState.validPreviousStates``, ``ConsumerGroup.maybeUpdateGroupState``.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from coordinator_model.states import Evidence, GroupState


class StateEvent(StrEnum):
    """What happened to a group, in Kafka's words."""

    OFFSETS_COMMITTED = "an offset is committed, and nothing else is known of the group"
    MEMBER_JOINED = "a member asked to join, and its answer was lost"
    MEMBER_LEFT = "a member leaves and others stay"
    MEMBER_UNKNOWN = "a member is answered UNKNOWN_MEMBER_ID: it was removed"
    REBALANCE_IN_PROGRESS = "a member is answered REBALANCE_IN_PROGRESS"
    ASSIGNMENT_NOT_STORED = "the leader's assignment cannot be stored"
    DOWNGRADED = "the group is converted to the classic protocol"
    GENERATION_ANNOUNCED = "a JoinGroup is answered with another generation"
    ASSIGNMENT_STORED = "a SyncGroup is answered with an assignment"
    HEARTBEAT_ACCEPTED = "a heartbeat of the generation is accepted"
    LAST_MEMBER_LEFT = "the last member leaves"
    RECORD_WITH_MEMBERS = "a record of the classic protocol lists members"
    RECORD_WITHOUT_MEMBERS = "a record of the classic protocol lists nobody"
    LOADED_WITH_MEMBERS = "another coordinator has loaded the last record, which lists members"
    LOADED_WITHOUT_MEMBERS = "another coordinator has loaded the last record, which lists nobody"
    NOT_LOADED = "another coordinator has loaded the log, which has no record of the group"
    TOMBSTONE_WRITTEN = "a tombstone is written"
    CONVERTED = "the first record of another kind of group is written"
    NO_MEMBERS = "no member is left"
    TOPOLOGY_NOT_VALIDATED = "the topology is not validated (streams groups)"
    EPOCH_AHEAD = "the group's epoch is ahead of the assignment's"
    NOT_RECONCILED = "a member has not reached its target"
    ALL_RECONCILED = "all members have reached their targets (share groups: there are members)"
    REMOVED_UNWRITTEN = "a refused classic JoinGroup removed an empty KIP-848 group, without a record"


class StateChange(NamedTuple):
    """To which state an event leads, from which states it is expected, and how well the new state is known."""

    to: GroupState
    sources: frozenset[GroupState]
    evidence: Evidence


def _to(to: GroupState, evidence: Evidence, *sources: GroupState | Collection[GroupState]) -> StateChange:
    known = [{source} if isinstance(source, GroupState) else set(source) for source in sources]
    return StateChange(to, frozenset(set[GroupState]().union(*known)), evidence)


EMPTY, STABLE, DEAD, UNKNOWN = GroupState.EMPTY, GroupState.STABLE, GroupState.DEAD, GroupState.UNKNOWN
PREPARING, COMPLETING = GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
OBSERVED, INFERRED = Evidence.OBSERVED, Evidence.INFERRED
ANY = frozenset(GroupState)
CLASSIC_STATES = frozenset({EMPTY, PREPARING, COMPLETING, STABLE, DEAD, UNKNOWN})
EPOCH_STATES = ANY - {PREPARING, COMPLETING}
"""States of groups whose every step is in the log: KIP-848 consumer groups, share and streams groups."""

CLASSIC = {
    StateEvent.OFFSETS_COMMITTED: _to(EMPTY, OBSERVED, UNKNOWN, DEAD),
    StateEvent.MEMBER_JOINED: _to(PREPARING, INFERRED, CLASSIC_STATES),
    StateEvent.MEMBER_LEFT: _to(PREPARING, INFERRED, COMPLETING, STABLE),
    StateEvent.MEMBER_UNKNOWN: _to(PREPARING, INFERRED, COMPLETING, STABLE),
    StateEvent.REBALANCE_IN_PROGRESS: _to(PREPARING, OBSERVED, CLASSIC_STATES),
    StateEvent.ASSIGNMENT_NOT_STORED: _to(PREPARING, INFERRED, COMPLETING, STABLE),
    StateEvent.DOWNGRADED: _to(PREPARING, OBSERVED, STABLE),
    StateEvent.GENERATION_ANNOUNCED: _to(COMPLETING, OBSERVED, CLASSIC_STATES),
    StateEvent.ASSIGNMENT_STORED: _to(STABLE, OBSERVED, COMPLETING),
    StateEvent.HEARTBEAT_ACCEPTED: _to(STABLE, INFERRED, CLASSIC_STATES),
    StateEvent.LAST_MEMBER_LEFT: _to(EMPTY, INFERRED, COMPLETING, STABLE),
    StateEvent.LOADED_WITH_MEMBERS: _to(STABLE, INFERRED, CLASSIC_STATES - {DEAD, UNKNOWN}),
    StateEvent.LOADED_WITHOUT_MEMBERS: _to(EMPTY, INFERRED, CLASSIC_STATES - {DEAD, UNKNOWN}),
    StateEvent.NOT_LOADED: _to(DEAD, INFERRED, PREPARING, COMPLETING, STABLE),
}
WRITTEN = {
    StateEvent.RECORD_WITH_MEMBERS: _to(STABLE, OBSERVED, ANY),
    StateEvent.RECORD_WITHOUT_MEMBERS: _to(EMPTY, OBSERVED, ANY),
    StateEvent.TOMBSTONE_WRITTEN: _to(DEAD, OBSERVED, ANY),
    StateEvent.CONVERTED: _to(UNKNOWN, OBSERVED, ANY),
}
"""What the log says is so, whatever the state was before."""
EPOCHS = {
    StateEvent.NO_MEMBERS: _to(EMPTY, OBSERVED, EPOCH_STATES),
    StateEvent.TOPOLOGY_NOT_VALIDATED: _to(GroupState.NOT_READY, OBSERVED, EPOCH_STATES),
    StateEvent.EPOCH_AHEAD: _to(GroupState.ASSIGNING, OBSERVED, EPOCH_STATES),
    StateEvent.NOT_RECONCILED: _to(GroupState.RECONCILING, OBSERVED, EPOCH_STATES),
    StateEvent.ALL_RECONCILED: _to(STABLE, OBSERVED, EPOCH_STATES),
    StateEvent.REMOVED_UNWRITTEN: _to(DEAD, OBSERVED, EMPTY),
}
"""After each record the state is derived from epochs and members, as the coordinator does. The last event writes no
record."""
STATE_CHANGES = CLASSIC | WRITTEN | EPOCHS
