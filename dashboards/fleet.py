"""*Fleet*: which groups are in trouble, why and since when; how many rebalance; which members are at risk."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from coordinator_model.states import Severity
from dashboards import queries
from dashboards.links import GROUP_LINKS
from dashboards.panels import (
    ANY_IS_BAD,
    GREEN,
    HEADROOM,
    ORANGE,
    POLL_HEADROOM,
    RATIO,
    RED,
    STORM_REBALANCES,
    Look,
    Query,
    board,
    cluster_variable,
    listing,
    number,
    page_variable,
    series,
)
from streaming.serve import lag_metrics, metrics

ROWS_SHOWN = 100
NAME = "fleet"


def build() -> Dashboard:
    """Build the dashboard."""
    return board(
        NAME,
        "Consumer groups: fleet",
        "Which consumer groups are in trouble, why and since when. A row links to its group.",
        variables=(cluster_variable(), page_variable()),
        incidents=f'{queries.IN_CLUSTER}, severity="page"',
        rows={"Now": _now(), "Unwell": _unwell(), "Lag": _lag(), "Over time": _over_time()},
    )


def _now() -> list[object]:
    page, warn = (f'{queries.IN_CLUSTER}, severity="{severity}"' for severity in (Severity.PAGE, Severity.WARN))
    violated = f'{queries.IN_CLUSTER}, liveness="violated"'
    covered = Look(RATIO, ((None, RED), (0.9, ORANGE), (0.99, GREEN)), 0, 1)
    known = queries.all_of(metrics.MEMBERS, f'{queries.IN_CLUSTER}, liveness!="unknown"')
    return [
        number(
            "Pages open",
            "Open incidents of severity page.",
            queries.all_of(metrics.INCIDENTS_OPEN, page),
            Look(steps=ANY_IS_BAD),
        ),
        number(
            "Warnings open",
            "Open incidents of severity warn.",
            queries.all_of(metrics.INCIDENTS_OPEN, warn),
            Look(steps=((None, GREEN), (1, ORANGE))),
        ),
        number(
            "Groups rebalancing",
            "Groups whose members wait for each other right now.",
            f"sum({queries.rebalancing()}) or vector(0)",
            Look(steps=((None, GREEN), (1, ORANGE))),
        ),
        number(
            "Members in violation",
            "Members that broke a timeout and whose incident is still open.",
            queries.all_of(metrics.MEMBERS, violated),
            Look(steps=ANY_IS_BAD),
        ),
        number(
            "Members covered",
            "Share of the members whose liveness telemetry shows; the others are unknown.",
            f"({known}) / sum({queries.once(f'{metrics.MEMBERS}{{{queries.IN_CLUSTER}}}')})",
            covered,
        ),
        number("Groups", "All consumer groups of the clusters chosen.", queries.all_of(metrics.GROUPS)),
    ]


def _unwell() -> list[object]:
    return [*_unwell_groups(), *_unwell_members()]


def _unwell_groups() -> list[object]:
    least = f"bottomk(20, min by (cluster, group) ({metrics.GROUP_HEADROOM}{{{queries.IN_CLUSTER}}}))"
    return [
        listing(
            "Open incidents, oldest first",
            "Every group with an open incident: the rule that is broken and for how long. The group's page tells which "
            "member, host and partitions, and with what evidence.",
            f"topk({ROWS_SHOWN}, {queries.incident_ages()})",
            "open for",
            Look("s"),
            links=GROUP_LINKS,
        ),
        listing(
            "Least heartbeat headroom",
            "The share of its session timeout that the worst member has left; at risk below a third.",
            least,
            "headroom",
            Look(RATIO, HEADROOM, 0, 1),
            links=GROUP_LINKS,
            span=6,
        ),
        listing(
            "Most rebalances in 10 minutes",
            f"Generations begun in the last 10 minutes; {STORM_REBALANCES} may be a storm.",
            f"topk(20, {queries.new_generations('10m')} > 0)",
            "rebalances",
            Look(steps=((None, GREEN), (2, ORANGE), (STORM_REBALANCES, RED))),
            links=GROUP_LINKS,
            span=6,
        ),
    ]


def _unwell_members() -> list[object]:
    by_client = "cluster, group, client_id, client_host"
    worst, slowest = (
        f"bottomk(20, min by ({by_client}) ({metric}{{{queries.IN_CLUSTER}}}))"
        for metric in (metrics.MEMBER_HEADROOM, metrics.MEMBER_POLL_HEADROOM)
    )
    return [
        listing(
            "Members worst off",
            "The members with the least share of their session timeout left, by client and host; ids are on the pages.",
            worst,
            "headroom",
            Look(RATIO, HEADROOM, 0, 1),
            links=GROUP_LINKS,
        ),
        listing(
            "Members slowest to poll",
            "The members with the least share of max.poll.interval.ms left, of clients that report when they polled; "
            "at risk below a fifth.",
            slowest,
            "headroom",
            Look(RATIO, POLL_HEADROOM, 0, 1),
            links=GROUP_LINKS,
        ),
    ]


def _lag() -> list[object]:
    return [*_lag_totals(), *_groups_behind(), *_lag_over_time()]


def _lag_totals() -> list[object]:
    behind = f'{queries.IN_CLUSTER}, status!~"ok|unknown"'
    return [
        number(
            "Messages not committed",
            "Of all groups together, as far as is known.",
            f"sum({queries.once(f'{lag_metrics.LAG}{{{queries.IN_CLUSTER}}}')})",
            span=8,
        ),
        number(
            "Groups that fall behind or have stopped",
            "Groups of which a partition's status is warn, rewind, stall or stop, by Burrow's rules.",
            queries.all_of(lag_metrics.LAG_GROUPS, behind),
            Look(steps=((None, GREEN), (1, ORANGE))),
            span=8,
        ),
        number(
            "Stalled partitions",
            "Partitions whose owner is alive and has not committed them for far longer than usual.",
            queries.all_of(lag_metrics.GROUP_STALLED, queries.IN_CLUSTER),
            Look(steps=((None, GREEN), (1, ORANGE))),
            span=8,
        ),
    ]


def _groups_behind() -> list[object]:
    stalled = f"max by (cluster, group, topic) ({lag_metrics.TOPIC_STALLED}{{{queries.IN_CLUSTER}}}) > 0"
    largest, longest = (
        f"topk(20, max by (cluster, group) ({metric}{{{queries.IN_CLUSTER}}}))"
        for metric in (lag_metrics.GROUP_LAG, lag_metrics.GROUP_LAG_TIME)
    )
    return [
        listing(
            "Stalled partitions, by topic",
            "Partitions of a topic that are stalled although their owner is alive. The group's page names them with "
            "owner and host.",
            f"topk({ROWS_SHOWN}, {stalled})",
            "partitions",
            Look(steps=((None, GREEN), (1, ORANGE))),
            links=GROUP_LINKS,
            span=8,
        ),
        listing(
            "Largest lag",
            "The groups with the most messages that they have not committed.",
            largest,
            "messages",
            links=GROUP_LINKS,
            span=8,
        ),
        listing(
            "Longest wait",
            "How long the oldest message that a group has not committed has waited, at the least.",
            longest,
            "waits",
            Look("s"),
            links=GROUP_LINKS,
            span=8,
        ),
    ]


def _lag_over_time() -> list[object]:
    return [
        series(
            "Groups by lag status",
            "By the worst status that is known of their partitions.",
            Query(queries.total(lag_metrics.LAG_GROUPS, "status"), "{{status}}"),
            stacked=True,
        ),
        series(
            "Messages not committed, over time",
            "Of all groups of a cluster together.",
            Query(queries.total(lag_metrics.LAG, "cluster"), "{{cluster}}"),
            look=Look(low=0),
        ),
    ]


def _over_time() -> list[object]:
    return [
        series(
            "Groups by state",
            "Groups by the state that the coordinator keeps them in.",
            Query(queries.total(metrics.GROUPS, "state"), "{{state}}"),
            stacked=True,
        ),
        series(
            "Members by liveness",
            "Alive, violated, or unknown because telemetry is missing.",
            Query(queries.total(metrics.MEMBERS, "liveness"), "{{liveness}}"),
            stacked=True,
        ),
        series(
            "Incidents open, by rule",
            "How many incidents of each rule are open.",
            Query(queries.total(metrics.INCIDENTS_OPEN, "rule"), "{{rule}}"),
            stacked=True,
        ),
        series(
            "Incidents opened, by rule",
            "New incidents a second.",
            Query(f"{queries.rate(metrics.INCIDENTS_OPENED, 'rule')} > 0", "{{rule}}"),
            look=Look("cps"),
        ),
        series(
            "Rebalances by cause",
            "Generations begun a second, by what began them.",
            Query(queries.rate(metrics.GENERATIONS, "cause"), "{{cause}}"),
            look=Look("cps"),
            stacked=True,
        ),
        series(
            "Members in a rebalance",
            "Members of groups that are rebalancing: the part of the fleet that waits.",
            Query(queries.members_rebalancing(), "members"),
        ),
    ]
