"""The states of groups in Kafka's own spelling, causes, evidence and severities."""

from enum import StrEnum


class GroupType(StrEnum):
    """What kind of group it is; ``simple`` has committed offsets and no members' record."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"
    SIMPLE = "simple"


class GroupState(StrEnum):
    """``UNKNOWN`` is ours: nothing about the group has been seen yet."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"
    UNKNOWN = "Unknown"


REBALANCING = (
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.ASSIGNING,
    GroupState.RECONCILING,
)
"""States in which members wait for each other instead of working. A KIP-848 group works on while it reconciles."""


class MemberState(StrEnum):
    """How far a member of a KIP-848, share or streams group has come to its target assignment."""

    STABLE = "stable"
    UNREVOKED = "unrevoked"
    """It owns something that it has been told to revoke, and stays in its epoch until it has."""
    UNRELEASED = "unreleased"
    """It is in its new epoch, and waits for partitions that others have not revoked yet."""
    UNKNOWN = "unknown"


SESSION_EXPIRED = "session-expired"
REBALANCE_TIMEOUT = "rebalance-timeout"
POLL_EXCEEDED = "poll-exceeded"
MEMBER_REMOVED = "member-removed"
"""The ids of the rules about a member that is gone. The last is for an unknown cause."""


class Evidence(StrEnum):
    """How something is known: a record or an answer says so, or it is inferred from them."""

    OBSERVED = "observed"
    INFERRED = "inferred"


class Cause(StrEnum):
    """Why a member is gone, or what failed. The words are part of the contract."""

    SESSION_TIMEOUT = "session-timeout"
    POLL_INTERVAL = "poll-interval"
    SESSION_OR_POLL = "session-or-poll"
    REBALANCE_TIMEOUT = "rebalance-timeout"
    LEFT = "left"
    STATIC_LEFT = "static-left"
    ADMIN = "admin"
    REPLACED = "replaced"
    COORDINATOR_PAUSE = "coordinator-pause"
    COORDINATOR_MOVED = "coordinator-moved"
    SUBSCRIPTION_CHANGED = "subscription-changed"
    PARTITIONS_CHANGED = "partitions-changed"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    """From least to most bad."""

    INFO = "info"
    WARN = "warn"
    PAGE = "page"

    @property
    def rank(self) -> int:
        """Order of badness, 0 is least."""
        return list(Severity).index(self)
