"""The states of groups in Kafka's own spelling, and the causes, kinds of evidence and severities of findings."""

from enum import StrEnum


class GroupType(StrEnum):
    """The type of a group; a ``simple`` group has committed offsets and no record of members."""

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
"""States in which members wait for each other instead of working. A KIP-848 group keeps working while it reconciles."""


class MemberState(StrEnum):
    """How far a member of a KIP-848, share or streams group has come to its target assignment."""

    STABLE = "stable"
    UNREVOKED = "unrevoked"
    """It owns partitions that it was told to revoke, and stays in its epoch until it has revoked them."""
    UNRELEASED = "unreleased"
    """It is in its new epoch, and waits for partitions that other members have not revoked yet."""
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
    """Why a member is gone, or what failed. The values are part of the API."""

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
    """How bad a finding is, from least to most severe."""

    INFO = "info"
    WARN = "warn"
    PAGE = "page"

    @property
    def rank(self) -> int:
        """Its place in the order of severity; 0 is the least severe."""
        return list(Severity).index(self)
