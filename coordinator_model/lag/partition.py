"""What is known about a partition that a group reads, and about the group. ``group_lag`` judges it."""

from typing import NamedTuple

WINDOW = 10
"""How many commits of a partition are kept, like Burrow's ``intervals``."""
MIN_DISTANCE_MS = 1_000
"""A commit that follows another sooner than this replaces it. Otherwise frequent commits would make the window span
hardly any time."""


class Commit(NamedTuple):
    """A commit. ``end_offset`` is the newest end offset that was known when the commit was read; None: none was."""

    offset: int
    at_ms: int
    end_offset: int | None


class Owner(NamedTuple):
    """The owner of a partition: a member as the group's view shows it, and since when it has owned the partition."""

    member_id: str
    instance_id: str | None
    client_id: str | None
    client_host: str | None
    liveness: str
    """``alive``, ``violated`` or ``unknown``."""
    generation: int
    since_ms: int
    max_poll_interval_ms: int | None = None
    """How long it may take to process the records of one poll; None: not known."""


class PartitionLag(NamedTuple):
    """A partition of a topic that a group has committed to or owns, at an instant."""

    topic: str
    topic_id: str | None
    partition: int
    commits: tuple[Commit, ...] = ()
    """The newest commits, at most ``WINDOW``, oldest first; empty: it is owned, and nothing was ever committed."""
    start_offset: int | None = None
    end_offset: int | None = None
    """The log's start and end offsets. None: not known, or they are those of another topic with this name."""
    asked_ms: int | None = None
    """When the brokers were asked for these offsets."""
    stable_offset: int | None = None
    """The last stable offset, where a consumer with ``read_committed`` stops. None: not known yet, so nothing that
    waits for a transaction can be told from what is stalled."""
    waits_since_ms: int | None = None
    """When its oldest uncommitted message was first known to be in the log; None: not known."""
    owner: Owner | None = None
    leader_epoch: int = -1
    metadata: str = ""
    """The first characters of the newest commit's metadata."""


class GroupFacts(NamedTuple):
    """What the group's newest view says; ``view_ms`` is its instant, 0: there is none yet."""

    cluster: str
    group: str
    type: str
    state: str
    generation: int
    incarnation: int
    broker: str
    view_ms: int
    stable_since_ms: int | None
    reason: str | None = None
    """Why its newest rebalance began, as far as it is known."""
    outage_end_ms: int = 0
    """When the last outage ended: rounds of end offsets were missing, or the shard had one (``rules.outages``)."""
    shard: int = -1
