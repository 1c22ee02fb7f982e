"""*Rebalances*: storms, groups that rebalance often, and the cost."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from coordinator_model.thresholds import Thresholds
from dashboards import queries
from dashboards.links import GROUP_LINKS
from dashboards.panels import (
    GREEN,
    ORANGE,
    RATIO,
    RED,
    STORM_REBALANCES,
    WIDTH,
    Look,
    Query,
    board,
    cluster_variable,
    listing,
    number,
    page_variable,
    series,
)
from streaming.serve import metrics

NAME = "rebalances"
SLOW_S = Thresholds().rebalance_slow_ms / 1_000
COST_STEP_S = 60  # of the subquery below; with a minute, 24 h of a large fleet stay cheap


def build() -> Dashboard:
    """Build the dashboard."""
    return board(
        NAME,
        "Consumer groups: rebalances",
        "Which groups rebalance too often, which never come to rest, and how much work stands still meanwhile.",
        variables=(cluster_variable(), page_variable()),
        incidents=f'{queries.IN_CLUSTER}, severity="page"',
        rows={"In the time shown": _totals(), "Who": _who(), "Over time": _over_time()},
    )


def _totals() -> list[object]:
    storms = queries.all_of(metrics.INCIDENTS_OPEN, f'{queries.IN_CLUSTER}, rule="rebalance-storm", severity="page"')
    waited_s = f"sum_over_time({queries.members_rebalancing()}[$__range:{COST_STEP_S}s]) * {COST_STEP_S}"
    return [
        number(
            "Storms now",
            "Groups with a rebalance-storm of severity page. A start and a rolling deploy are none.",
            storms,
            Look(steps=((None, GREEN), (1, RED))),
            span=8,
        ),
        number(
            "Rebalances",
            "Generations begun by all groups in the time shown.",
            f"sum({queries.new_generations('$__range')})",
            span=8,
        ),
        number(
            "Members' time spent waiting",
            f"Members of rebalancing groups, added up over the time shown in steps of {COST_STEP_S} s. "
            "Those of a KIP-848 group go on working meanwhile.",
            waited_s,
            Look("s"),
            span=8,
        ),
    ]


def _who() -> list[object]:
    flappers = f"topk(50, {queries.new_generations('$__range')} > 0)"
    share = f"topk(50, {queries.rebalancing_share('$__range')})"
    steps = ((None, GREEN), (STORM_REBALANCES, ORANGE), (4 * STORM_REBALANCES, RED))
    return [
        listing(
            "Flappers",
            "Groups by generations begun in the time shown.",
            flappers,
            "rebalances",
            Look(steps=steps),
            links=GROUP_LINKS,
        ),
        listing(
            "Share of time rebalancing",
            "The part of the time shown in which a group's members waited for each other.",
            share,
            "share",
            Look(RATIO, ((None, GREEN), (0.01, ORANGE), (0.1, RED)), 0, 1),
            links=GROUP_LINKS,
        ),
        listing(
            "Going on now",
            "Rebalances by the time that their phase has lasted: join, sync, or reconciliation.",
            f"topk(50, {queries.phase_ages('cluster', 'group', 'phase')})",
            "lasts",
            Look("s", ((None, GREEN), (SLOW_S, RED))),
            links=GROUP_LINKS,
        ),
        listing(
            "Waited for in the time shown",
            "Clients and hosts that rebalances waited for, as far as heartbeats tell, and how many members at most.",
            f"topk(50, {queries.waited_for()})",
            "members",
            links=GROUP_LINKS,
        ),
    ]


def _over_time() -> list[object]:
    worst = f"topk(10, {queries.new_generations('10m')} > 0)"
    fleet = f"sum({queries.new_generations('10m')})"
    return [
        series(
            "Rebalances in 10 minutes, worst groups",
            f"A line at {STORM_REBALANCES} or above is a storm, unless the group starts, grows or is deployed.",
            Query(worst, "{{cluster}} {{group}}"),
            look=Look(steps=((None, GREEN), (STORM_REBALANCES, RED)), low=0),
        ),
        series(
            "Rebalances in 10 minutes, all groups",
            "A step of the whole fleet is a broker or a deploy, not a group.",
            Query(fleet, "all groups"),
            look=Look(low=0),
        ),
        series(
            "Rebalances by cause",
            "Generations begun a second, by what began them.",
            Query(queries.rate(metrics.GENERATIONS, "cause"), "{{cause}}"),
            look=Look("cps"),
            stacked=True,
        ),
        series(
            "Groups and members in a rebalance",
            "How much of the fleet waits.",
            Query(f"sum({queries.rebalancing()}) or vector(0)", "groups"),
            Query(queries.members_rebalancing(), "members"),
            look=Look(low=0),
        ),
        series(
            "Partitions moved",
            "Partitions a second that new generations took from one member and gave to another: state and caches "
            "that are built anew.",
            Query(queries.rate(metrics.PARTITIONS_MOVED, "cluster"), "{{cluster}}"),
            look=Look("cps", low=0),
            span=WIDTH,
        ),
    ]
