"""Every rule in a table: the facts of its runbook under ``docs/rules`` are made from this (`make rules`)."""

from typing import NamedTuple

SHARD = "shard"
LAG = "lag"


class Rule(NamedTuple):
    """The facts of a rule; ``thresholds`` are fields of ``Thresholds``.

    ``lasting``: what happened stays true until somebody came back or the group is well without: silence does not close
    it. ``superseded_by``: the rule that a risk turns into. ``violation``: it says that a member has broken a timeout.
    ``needs_heartbeats``: a heartbeat may end its findings. ``judged_by``: whose reports tell of it: a shard's, or those
    of ``lag``. ``needs_owner``: it is over, and not better, once the member that it names has gone.
    """

    id: str
    severities: tuple[str, ...]
    evidence: str
    true_when: str
    clears: str
    thresholds: tuple[str, ...] = ()
    lasting: bool = False
    superseded_by: str | None = None
    violation: bool = False
    needs_heartbeats: bool = False
    judged_by: str = SHARD
    needs_owner: bool = False


PAGES = ("warn", "page")
MEMBER_CLEARS = (
    "`rejoined` (the same instance, else connection, else client id and host where no other member has both, is back),"
    " `recovered` (stable without it, every partition owned), `refuted`, `group-deleted`"
)
ESCALATION = ("page_after_ms", "recurrences_to_page", "recurrence_window_ms", "resolve_after_ms")

RULES = (
    Rule(
        "session-expired",
        PAGES,
        "observed once the coordinator's own lists no longer have the member; before that inferred from its silence",
        "no heartbeat was accepted for the member's session timeout",
        MEMBER_CLEARS,
        ("grace_ms", *ESCALATION),
        lasting=True,
        violation=True,
        needs_heartbeats=True,
    ),
    Rule(
        "session-at-risk",
        ("info",),
        "observed",
        "a member of a stable group has used two thirds of its session timeout without a heartbeat",
        "`recovered` (heard again), `superseded` (its session expired, it is gone, the group rebalances, or nobody can"
        " say any more: `telemetry-uncovered`)",
        ("at_risk_ratio",),
        superseded_by="session-expired",
        needs_heartbeats=True,
    ),
    Rule(
        "poll-exceeded",
        PAGES,
        "observed where the client says so: by the reason in its LeaveGroup, a report or pushed metrics. Inferred where"
        " it left without a reason, and either came back on the same connection, a poll interval or more after it had"
        " joined, or left when its limit had passed and goes on pushing metrics that show no poll",
        "a client did not poll within `max.poll.interval.ms`",
        MEMBER_CLEARS,
        ESCALATION,
        lasting=True,
        violation=True,
        needs_heartbeats=True,
    ),
    Rule(
        "poll-at-risk",
        ("info",),
        "observed: the client's own report or pushed metrics",
        "a client reports a poll age of at least four fifths of `max.poll.interval.ms`",
        "`recovered` (it tells of a younger poll, or of none for 10 s after the deadline), `superseded` (it was"
        " exceeded)",
        ("poll_at_risk_ratio", "hold_ms"),
        superseded_by="poll-exceeded",
    ),
    Rule(
        "left-without-reason",
        ("info",),
        "inferred: a client that hangs and one that is closed send the same request; one that is still alive goes on"
        " asking for its coordinator",
        "a member left without a reason, may not have polled for `max.poll.interval.ms`, and did not come back within"
        " `unstable_after_ms`: it was closed, or it may have stopped polling",
        "`recovered` (it is back, or eleven minutes have passed), `superseded` (it has stopped polling)",
        ("unstable_after_ms",),
    ),
    Rule(
        "static-member-stuck",
        ("warn", "page"),
        "observed: the client's own report; inferred (a warning) where its metrics tell that its limit passed as its"
        " heartbeats stopped",
        "a static member's poll is overdue and it still holds partitions, which nobody reads until its session ends",
        "`recovered` (it polls again, or its session has ended)",
        ("grace_ms",),
        needs_heartbeats=True,
    ),
    Rule(
        "rebalance-timeout",
        PAGES,
        "observed",
        "a member was dropped because it did not rejoin, sync or revoke within the rebalance timeout",
        MEMBER_CLEARS,
        ("grace_ms", *ESCALATION),
        lasting=True,
        violation=True,
        needs_heartbeats=True,
    ),
    Rule(
        "member-removed",
        ("info", "warn"),
        "inferred: lines of the coordinator are missing, and the one that tells the cause may be among them; or the"
        " coordinator had just moved, and nothing tells when sessions began anew; or only records are read",
        "a member was removed, and why is unknown: it may have been closed, or have broken a timeout. A warning once"
        " its partitions have been read by nobody for `page_after_ms`, but only info where only records are read;"
        " never a page",
        MEMBER_CLEARS + "; where only records are read also `recovered` once its group has been empty for"
        " `resolve_after_ms`, and `superseded` (its client has told that its poll was overdue)",
        ("grace_ms", "page_after_ms", "resolve_after_ms"),
        lasting=True,
    ),
    Rule(
        "rebalance-stuck",
        ("page",),
        "inferred: who still sends heartbeats has not rejoined",
        "a join, sync or reconciliation phase has lasted longer than `rebalance_slow_ms`, or than 80 % of the group's"
        " rebalance timeout where that is less",
        "`recovered` (the phase is over)",
        ("rebalance_slow_ms",),
    ),
    Rule(
        "rebalance-storm",
        ("info", "page"),
        "observed",
        "a group rebalanced `storm_rebalances` times within `storm_window_ms`, counted from the first member that left;"
        " info for a rolling deploy",
        "`recovered` (the window holds fewer)",
        ("storm_rebalances", "storm_window_ms"),
    ),
    Rule(
        "rebalance-aborted",
        ("warn",),
        "observed, live only",
        "a generation was announced and given up before its leader's sync, and the group is not stable"
        " `unstable_after_ms` later, or three were given up in a row",
        "`recovered` (a generation is synced, or nobody is left)",
        ("unstable_after_ms",),
    ),
    Rule(
        "join-refused",
        ("warn",),
        "observed",
        "a client that asks to join, or a member's Heartbeat or SyncGroup, is refused with the same lasting error three"
        " times, less than ten minutes apart",
        "`recovered` (it joined, or did not ask for ten minutes; a member has synced, or was not refused for"
        " `resolve_after_ms`)",
        ("resolve_after_ms",),
    ),
    Rule(
        "member-fenced",
        ("warn",),
        "observed",
        "a client goes on as a member that the coordinator no longer knows: it is answered UNKNOWN_MEMBER_ID,"
        " ILLEGAL_GENERATION, FENCED_INSTANCE_ID or FENCED_MEMBER_EPOCH three times",
        "`recovered` (silent for `resolve_after_ms`)",
        ("resolve_after_ms",),
    ),
    Rule(
        "zombie-commit",
        ("info", "warn"),
        "observed: the answers to its commits, where the snippet has `--refused-commits`",
        "a former member went on processing: its commit was refused with UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID, or"
        " with ILLEGAL_GENERATION for partitions that another member has. A warning if it was seen as a member; info"
        " for a transaction, which is void",
        "`recovered` (no commit of it was refused for `resolve_after_ms`)",
        ("resolve_after_ms",),
    ),
    Rule(
        "timeouts-inconsistent",
        ("info",),
        "observed",
        "in a settled group session or rebalance timeouts differ, a session timeout lies at the broker's default bounds"
        " (6,000 and 1,800,000 ms), fewer than three heartbeats fit into it, or a rebalance timeout"
        " (`max.poll.interval.ms`) is a day or longer",
        "`recovered` (no longer so, or the group is not stable)",
        ("settled_after_ms",),
    ),
    Rule(
        "mixed-subscriptions",
        ("info",),
        "observed",
        "members of a settled group share no topic with the others, directly or through a third",
        "`recovered` (no longer so, or the group is not stable)",
        ("settled_after_ms",),
    ),
    Rule(
        "assignment-skewed",
        ("info",),
        "observed",
        "in a settled group a member holds at least twice the mean of those with its topics, and at least two"
        " partitions more than the idlest; Kafka Streams excepted",
        "`recovered` (no longer so, or the group is not stable)",
        ("settled_after_ms",),
    ),
    Rule(
        "member-idle",
        ("info",),
        "observed",
        "members of a settled group subscribe and hold no partition while others do; Kafka Streams excepted",
        "`recovered` (no longer so, or the group is not stable)",
        ("settled_after_ms",),
    ),
    Rule(
        "partition-unowned",
        PAGES,
        "observed; partition counts are at most a minute old",
        "a stable group subscribes to a topic and no member has held one of its partitions for `unstable_after_ms`; a"
        " page after `page_after_ms`",
        "`recovered` (every partition has an owner, or the group is not stable)",
        ("unstable_after_ms", "page_after_ms"),
    ),
    Rule(
        "partition-owned-twice",
        ("warn",),
        "observed",
        "two members of a stable group have owned the same partition for their rebalance timeout, and the group has"
        " been stable for `settled_after_ms`; not for share and streams groups",
        "`recovered` (every partition has one owner, or the group is not stable)",
        ("settled_after_ms",),
    ),
    Rule(
        "coordinator-unavailable",
        ("warn",),
        "observed",
        "clients are answered COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR, and nothing"
        " else, for longer than `failover_ms`",
        "`recovered` (another answer, or nobody asked for `resolve_after_ms`)",
        ("failover_ms", "resolve_after_ms"),
    ),
    Rule(
        "coordinator-paused",
        ("page",),
        "observed",
        "a coordinator stood still, restarted or moved, and members lost their sessions within a session timeout of it",
        "`recovered` (it has cost nobody a session for `resolve_after_ms`)",
        ("progress_gap_ms", "resolve_after_ms"),
    ),
    Rule(
        "broker-clock",
        ("warn",),
        "observed: the times of its lines jump, and those of other clocks do not",
        "a broker's clock jumped by more than `hold_ms`, forward or back, and now differs from the other brokers'"
        " clocks or this machine's",
        "`recovered` (it is back; where there is no other clock to compare it with, `resolve_after_ms` later)",
        ("hold_ms", "resolve_after_ms"),
    ),
    Rule(
        "replica-diverged",
        ("warn",),
        "observed",
        "the group's record contradicts the coordinator's answers about the same generation: other members, another"
        " leader, protocol, instance or timeout, or another assignment; the record is believed",
        "`recovered` (not again for `resolve_after_ms`)",
        ("resolve_after_ms",),
    ),
    Rule(
        "group-set-aside",
        ("warn",),
        "observed: this monitor's own failure",
        "this monitor failed on an event or the state of a group, and has dropped what it knew of it",
        "`recovered` (the group's next record was read, and nothing failed for `resolve_after_ms`), `group-deleted`",
        ("resolve_after_ms",),
    ),
    Rule(
        "telemetry-stalled",
        ("page",),
        "observed",
        "no line has come from a coordinator for `telemetry_stalled_ms`: its members cannot be judged",
        "`telemetry-back`",
        ("telemetry_stalled_ms",),
    ),
    Rule(
        "telemetry-uncovered",
        ("info",),
        "observed",
        "no heartbeat of some members of a stable group was seen for longer than their session timeout and"
        " `settled_after_ms`, though lines of their broker arrive and nothing shows that the members are dead; or a"
        " broker coordinates groups and no line of it was ever seen",
        "`recovered` (they are heard, or the group is not stable; the broker is seen, or leads no more)",
        ("settled_after_ms",),
        needs_heartbeats=True,
    ),
    Rule(
        "partition-stalled",
        ("warn",),
        "observed",
        "a member is alive and owns a partition, at least `stall_lag` messages wait in it, and it was not committed"
        " for `stall_intervals` of its usual intervals between commits plus `stall_margin_ms`, although the member kept"
        " up with another partition; or the member commits nothing at all for longer than its `max.poll.interval.ms`"
        " (`stall_silence_ms` if that is not known). The time starts again after a rebalance and after an outage of"
        " brokers",
        "`recovered` (the partition is committed, or nothing waits in it), `superseded` (its owner's session ended, or"
        " it has another owner), `group-deleted`",
        ("stall_intervals", "stall_margin_ms", "stall_silence_ms", "stall_lag"),
        judged_by=LAG,
        needs_owner=True,
    ),
    Rule(
        "lag-growing",
        ("warn",),
        "observed",
        "a stable group commits, the lag of a partition fell at none of its last ten commits and is larger than at the"
        " first of them, and the total lag of the partitions that members own has grown for `lag_growing_ms`",
        "`recovered` (the lag grows no longer), `superseded` (the group has no members), `group-deleted`",
        ("lag_growing_ms",),
        judged_by=LAG,
        needs_owner=True,
    ),
    Rule(
        "offset-rewound",
        ("warn",),
        "observed",
        "a committed offset went back, messages wait, and no commit reached the earlier offset again within"
        " `stall_margin_ms`",
        "`recovered` (a commit reached the earlier offset, or ten more commits followed from the lower one),"
        " `group-deleted`",
        ("stall_margin_ms",),
        judged_by=LAG,
    ),
    Rule(
        "offsets-lost",
        ("warn",),
        "observed",
        "the log does not hold the newest committed offset, and that commit is at least `stall_margin_ms` old: the"
        " offset is below the log start offset, or beyond the end offset",
        "`recovered` (the group commits an offset that the log holds), `group-deleted`",
        ("stall_margin_ms",),
        judged_by=LAG,
    ),
)
