"""One member of a group, as its replica keeps it."""

from dataclasses import dataclass, field

from coordinator_model.states import MemberState

Assignment = dict[str, list[int]]
"""Topic (or topic id) to its partitions."""


@dataclass(slots=True)
class Member:
    """What the coordinator must know about one member. Instants are by the coordinator's clock."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    connection: str | None = None
    software: str | None = None
    listener: str | None = None
    principal: str | None = None
    rejoin_reason: str | None = None
    """Why it last joined, in its client's own words."""
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    topics: list[str] = field(default_factory=list)
    assignment: Assignment = field(default_factory=dict)
    partitions_left_out: int = 0
    """How many of its assigned partitions are beyond the bound, so that they are not kept."""
    generation: int | None = None
    """Generation it last joined, or its KIP-848 member epoch."""
    joined_ms: int | None = None
    asked_ms: int | None = None
    """When it first asked to join, if brokers that were not the coordinator refused it before it was let in."""
    timer_reset_ms: int | None = None
    """Latest certain restart of the session timer by something other than a heartbeat."""
    last_heartbeat_ms: int | None = None
    """While it is a member, the heartbeat table keeps this and the previous one. The group store does not keep them: a
    replica gets them when it is taken out of the store."""
    previous_heartbeat_ms: int | None = None
    parked_heartbeat_ms: int | None = None
    """A heartbeat answered 15 behind a stalled write: it may have restarted the timer."""
    claimed_ms: int | None = None
    """A heartbeat accepted by a broker that metadata did not name as the coordinator: if it was the coordinator, the
    timer restarted."""
    unknown_ms: int | None = None
    """When its coordinator first answered that it does not know this member (25); None while it does."""
    replaced_ms: int | None = None
    """When it was replaced by a member whose id was not known then, for example because the answer was lost behind a
    stalled write."""
    fenced_ms: int | None = None
    """When the JoinGroup or SyncGroup arrived that was answered 82: that request waited until the successor came."""
    verdict_deadline_ms: int | None = None
    """The deadline that the member was found to have missed: it passed, and the member has not been heard since."""
    verdict_session_from_ms: int | None = None
    awaiting_sync: bool = False
    synced_ms: int | None = None
    """When its SyncGroup was last answered 0 or 27: it was a member then, though not every such answer restarts its
    timer."""
    state: str | None = None
    """KIP-848, share and streams: a ``MemberState``."""
    subscribed: list[str] = field(default_factory=list)
    """The topics that a KIP-848 member names; ``topics`` has those of its regular expression too."""
    topic_regex: str | None = None
    target: Assignment = field(default_factory=dict)
    """The partitions that the target assignment gives it (records 7, 13, 21)."""
    revoking: Assignment = field(default_factory=dict)
    """The part of its assignment that it has to give up (records 8, 22). Classic: what it says it owned when it joined
    and was not assigned again. Only a cooperative client still owns anything then."""
    revoking_since_ms: int | None = None
    tasks: dict[str, Assignment] = field(default_factory=dict)
    """What is assigned besides partitions: role (active, standby, warmup; connectors) to names to numbers."""
    kip848: bool = False
    away_ms: int | None = None
    """Since when a static KIP-848 member is away for a while (epoch -2); None: it is not."""
    beats_in_poll: bool = False
    """A client from before 0.10.1 (JoinGroup v0): its heartbeats stop when its polls do."""
    streams: bool = False
    """Whether its classic group chose Kafka Streams' protocol."""
    poll_deadline_ms: int | None = None
    """From a client's own report: when its poll age passed max.poll.interval.ms; None while it has not."""
    poll_told_ms: int | None = None
    """When it first reported that."""
    poll_age_ms: int | None = None
    poll_reported_ms: int | None = None
    max_poll_interval_ms: int | None = None
    """From the same report."""
    pushed_ms: int | None = None
    """When its client last pushed metrics (KIP-714) about its polls."""
    pushed: dict[str, float] = field(default_factory=dict)
    """Its other pushed metrics, by name, for display."""
    longest_poll_ms: int | None = None
    """The longest time between polls, by its last push."""
    poll_times: dict[str, int] = field(default_factory=dict)
    """How often each length of time passed between two polls, see ``poll_times``."""
    client_instance_id: str = ""
    """The id under which its client pushes metrics: once a member has left, librdkafka's pushes do not name it."""
    polled_from_ms: int | None = None
    """If its client pushes only whether it polled: the start of the interval in which it last did."""
    polled_until_ms: int | None = None
    """The end of that interval."""
    no_poll_until_ms: int | None = None
    """Its pushes show, without a gap up to this instant, that it has not polled since."""
    heartbeat_interval_ms: int | None = None
    """The time between its first two heartbeats that were seen with no restart of its session in between; measured
    again if it proves too long."""
    lent_timeout_ms: int | None = None
    """How long the session lasts that began at ``lent_from_ms``, if that is not its own timeout."""
    lent_from_ms: int | None = None
    owes_since_ms: int | None = None
    """Since when a classic member of a KIP-848 group owes a JoinGroup or, once it has joined, a SyncGroup."""
    may_owe_since_ms: list[int] = field(default_factory=list)
    """Such a member's heartbeats that were answered 15 behind a stalled write: each may have started its join
    timeout."""

    @property
    def session_from_ms(self) -> int | None:
        """When its session timer was last restarted for certain."""
        if self.last_heartbeat_ms is None:
            return self.timer_reset_ms
        return (
            self.last_heartbeat_ms if self.timer_reset_ms is None else max(self.timer_reset_ms, self.last_heartbeat_ms)
        )

    @property
    def tells_of_polls(self) -> bool:
        """Whether its client has reported anything about its polls."""
        return self.poll_age_ms is not None or self.pushed_ms is not None

    @property
    def verdict_ms(self) -> int | None:
        """The deadline that the member was found to have missed, as long as nothing has restarted its timer since.

        If its session turns out to have begun earlier than was known then, nothing has.
        """
        restarted = (self.session_from_ms or 0) > (self.verdict_session_from_ms or 0)
        return None if restarted else self.verdict_deadline_ms

    @property
    def is_classic_among_consumers(self) -> bool:
        """Whether it speaks the classic protocol in a KIP-848 group."""
        return not self.kip848 and self.state is not None

    @property
    def in_kip848_group(self) -> bool:
        """Whether its group is a KIP-848 group: that has no join phase, and each member has its own timers."""
        return self.kip848 or self.is_classic_among_consumers

    @property
    def subject(self) -> str:
        """What identifies the member across restarts: its instance id, or else its member id."""
        return self.instance_id or self.member_id

    @property
    def unrevoked(self) -> bool:
        """Whether it still holds partitions that it has to give up (records 8, 22)."""
        return self.state == MemberState.UNREVOKED

    @property
    def revoke_deadline_ms(self) -> int | None:
        """When the coordinator removes it unless it has given up what it has to; None: it does not have to by then.

        A classic member has a timer for that only since a coordinator has loaded the group.
        """
        if self.revoking_since_ms is None or self.rebalance_timeout_ms is None or self.is_classic_among_consumers:
            return None
        return self.revoking_since_ms + self.rebalance_timeout_ms
