"""All rules, one line each: the facts of the rule (a ``Rule`` in its module) and its judges.

``evaluate`` calls the judges in this order, and ``docs/rules`` lists the rules in this order. A judge of several rules
is called once: its findings name the rule.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from coordinator_model.lag.lag_context import LagContext
from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.replica.member import Member
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.rules import (
    broker_clock,
    coordinator,
    coordinator_unavailable,
    departed,
    group_set_aside,
    lag_growing,
    left_without_reason,
    offset_rewound,
    offsets_lost,
    partition_owned_twice,
    partition_stalled,
    partition_unowned,
    polling,
    rebalance_aborted,
    rebalance_storm,
    rebalance_stuck,
    refused,
    refused_unknown,
    replica_diverged,
    session,
    setup,
    telemetry_uncovered,
    zombie_commit,
)
from coordinator_model.rules.about_lag import Pending
from coordinator_model.rules.broker_watch import BrokerWatch
from coordinator_model.rules.findings import Finding, Verdict
from coordinator_model.rules.rule import Rule
from coordinator_model.thresholds import Thresholds

DepartureJudge = Callable[[GroupReplica, Departure, JudgementContext], Verdict]
MemberJudge = Callable[[GroupReplica, Member, JudgementContext], Verdict]
GroupJudge = Callable[[GroupReplica, JudgementContext], Verdict | Iterator[Verdict]]
SettledJudge = Callable[[GroupReplica, JudgementContext, int], Verdict]
BrokerJudge = Callable[[BrokerWatch, str, Thresholds], Iterable[Finding]]
LagJudge = Callable[[LagContext], Iterator[Finding]]
LagPending = Callable[[LagContext], Iterator[Pending]]


class Registered(NamedTuple):
    """A rule and its judges. Each judge is named after what it judges.

    ``departure``: a member that is gone. ``member``: a member of the group. ``polls``: a member whose client reports
    its polls. ``group``: the group as a whole. ``settled``: a group that has settled. ``broker``: what a shard has
    noticed about brokers. ``lag``: a group's lag. ``pending`` returns the rule's incidents that must not end although
    ``lag`` does not find them.
    """

    rule: Rule
    departure: DepartureJudge | None = None
    member: MemberJudge | None = None
    polls: MemberJudge | None = None
    group: GroupJudge | None = None
    settled: SettledJudge | None = None
    broker: BrokerJudge | None = None
    lag: LagJudge | None = None
    pending: LagPending | None = None


REGISTRY = (
    Registered(departed.SESSION_EXPIRED, departure=departed.judge, member=session.judge),
    # session.py judges session-expired as well: by the timer, and until the removal is judged
    Registered(session.SESSION_AT_RISK, departure=session.judge_unjudged, member=session.judge),
    Registered(departed.POLL_EXCEEDED, departure=departed.judge, polls=departed.judge_poll),
    Registered(polling.STATIC_MEMBER_STUCK, polls=polling.static_stuck),
    Registered(polling.POLL_AT_RISK, polls=polling.at_risk),
    Registered(departed.REBALANCE_TIMEOUT, departure=departed.judge),
    Registered(departed.MEMBER_REMOVED, departure=departed.judge),
    Registered(rebalance_stuck.REBALANCE_STUCK, group=rebalance_stuck.judge),
    Registered(rebalance_aborted.REBALANCE_ABORTED, group=rebalance_aborted.judge),
    Registered(rebalance_storm.REBALANCE_STORM, group=rebalance_storm.judge),
    Registered(partition_unowned.PARTITION_UNOWNED, group=partition_unowned.judge),
    Registered(partition_owned_twice.PARTITION_OWNED_TWICE, group=partition_owned_twice.judge),
    Registered(coordinator.COORDINATOR_PAUSED, broker=coordinator.paused),
    Registered(coordinator.TELEMETRY_STALLED, broker=coordinator.stalled),
    Registered(coordinator_unavailable.COORDINATOR_UNAVAILABLE, broker=coordinator_unavailable.judge),
    Registered(telemetry_uncovered.TELEMETRY_UNCOVERED, group=telemetry_uncovered.judge, broker=coordinator.uncovered),
    Registered(broker_clock.BROKER_CLOCK, broker=broker_clock.judge),
    Registered(replica_diverged.REPLICA_DIVERGED, group=replica_diverged.judge),
    Registered(group_set_aside.GROUP_SET_ASIDE, group=group_set_aside.judge),
    Registered(refused.JOIN_REFUSED, group=refused.judge, broker=refused_unknown.judge),
    Registered(refused.MEMBER_FENCED, group=refused.judge),
    Registered(zombie_commit.ZOMBIE_COMMIT, group=zombie_commit.judge),
    Registered(left_without_reason.LEFT_WITHOUT_REASON, group=left_without_reason.judge),
    Registered(setup.TIMEOUTS_INCONSISTENT, settled=setup.judge_timeouts),
    Registered(setup.MIXED_SUBSCRIPTIONS, settled=setup.judged(setup.mixed_subscriptions)),
    Registered(setup.ASSIGNMENT_SKEWED, settled=setup.judged(setup.assignment_skewed)),
    Registered(setup.MEMBER_IDLE, settled=setup.judged(setup.member_idle)),
    Registered(partition_stalled.PARTITION_STALLED, lag=partition_stalled.judge, pending=partition_stalled.pending),
    Registered(lag_growing.LAG_GROWING, lag=lag_growing.judge, pending=lag_growing.pending),
    Registered(offset_rewound.OFFSET_REWOUND, lag=offset_rewound.judge, pending=offset_rewound.pending),
    Registered(offsets_lost.OFFSETS_LOST, lag=offsets_lost.judge, pending=offsets_lost.pending),
)
RULES = tuple(each.rule for each in REGISTRY)

VIOLATIONS = frozenset(rule.id for rule in RULES if rule.violation)
HEARTBEAT_RULES = frozenset(rule.id for rule in RULES if rule.needs_heartbeats)
LASTING_RULES = frozenset(rule.id for rule in RULES if rule.lasting)
UNEXPLAINED_RULES = frozenset(rule.id for rule in RULES if rule.unexplained)
OWNER_RULES = frozenset(rule.id for rule in RULES if rule.needs_owner)
AT_RISK_RULES = {rule.id: rule.superseded_by for rule in RULES if rule.superseded_by is not None}
"""Maps a rule about a risk to the rule that it turns into."""
LAG_RULES = frozenset(each.rule.id for each in REGISTRY if each.lag is not None)
"""The rules that reports about lag cover. The reports of shards cover all others."""
ENDS_AS = {rule.id: rule.ends_as for rule in RULES}
