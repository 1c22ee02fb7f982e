"""*Group*: one group's states, generations, members, headroom and incidents."""

from typing import Any

from grafana_foundation_sdk.builders.dashboard import AnnotationQuery, AnnotationTarget, Dashboard, DashboardLink
from grafana_foundation_sdk.models.common import DataSourceRef
from grafana_foundation_sdk.models.dashboard import DashboardLinkType

from coordinator_model.states import GroupState
from coordinator_model.thresholds import Thresholds
from dashboards import queries
from dashboards.files import TAG
from dashboards.links import GROUP
from dashboards.panels import (
    ANY_IS_BAD,
    GREEN,
    GREY,
    HEADROOM,
    ORANGE,
    PLAIN,
    POLL_HEADROOM,
    RATIO,
    RED,
    STORM_REBALANCES,
    WIDTH,
    YELLOW,
    Look,
    Query,
    board,
    cluster_variable,
    columns,
    group_variable,
    listing,
    number,
    page_variable,
    series,
    timeline,
)
from streaming.serve import lag_metrics, metrics

_COLOURS = {
    GroupState.STABLE: GREEN,
    GroupState.EMPTY: GREY,
    GroupState.DEAD: RED,
    GroupState.UNKNOWN: GREY,
    GroupState.COMPLETING_REBALANCE: YELLOW,
    GroupState.RECONCILING: YELLOW,
}
STATES = Look(
    words={str(number): (state.value, _COLOURS.get(state, ORANGE)) for state, number in queries.STATE_NUMBERS.items()}
)
_STATUS_COLOURS = {"ok": GREEN, "stall": RED, "stop": RED}
STATUSES = Look(
    words={
        str(number): (name, _STATUS_COLOURS.get(name, ORANGE)) for name, number in lag_metrics.STATUS_NUMBERS.items()
    }
)
SHOWN = 50
"""How many topics a graph and how many partitions the table shows: the worst ones."""


def build() -> Dashboard:
    """Build the dashboard."""
    built = board(
        GROUP,
        "Consumer groups: one group",
        "What one group's coordinator did, and how close its members are to their limits. Members, hosts and evidence "
        "are on the group's page, which the link at the top opens.",
        variables=(cluster_variable(all_of_them=False), group_variable(), page_variable()),
        incidents=queries.OF_GROUP,
        rows={
            "Now": _now(),
            "Lag": _lag(),
            "Over time": _over_time(),
            "Members": _members(),
            "Rebalances": _rebalances(),
            "Incidents": _incidents(),
        },
    )
    page = "${monitor}/groups/${group:percentencode}?cluster=${cluster:percentencode}"
    built.annotation(_published())
    return built.link(
        DashboardLink("Members, hosts, evidence")
        .type(DashboardLinkType.LINK)
        .url(page)
        .icon("external link")
        .target_blank(True)
    )


def _published() -> AnnotationQuery:
    """Return the annotations of `dashboards publish --incidents`: begin, end and summary. They are off by default."""
    mine: Any = AnnotationTarget()  # the SDK's type hints allow only a data source's query here
    chosen = [f"{name}:${{{name}:percentencode}}" for name in ("cluster", "group")]
    mine.type("tags").tags([TAG, *chosen]).limit(100).match_any(False)
    grafana = DataSourceRef(type_val="grafana", uid="-- Grafana --")
    return (
        AnnotationQuery().name("Incidents, published").datasource(grafana).target(mine).icon_color("blue").enable(False)
    )


def _now() -> list[object]:
    return [
        number("State", "The state that the coordinator keeps the group in.", queries.state_number(), STATES),
        number("Generation", "Generation, or epoch of a KIP-848 group.", _worst(metrics.GROUP_GENERATION)),
        number("Members", "Members that the coordinator knows.", _worst(metrics.GROUP_MEMBERS)),
        number(
            "Least heartbeat headroom",
            "The share of its session timeout that the worst member has left.",
            _worst(metrics.GROUP_HEADROOM, "min"),
            Look(RATIO, HEADROOM, 0, 1),
        ),
        number(
            "Open incidents",
            "Of all severities.",
            queries.all_of(metrics.GROUP_INCIDENTS, queries.OF_GROUP),
            Look(steps=ANY_IS_BAD),
        ),
        number(
            "Rebalances in the time shown",
            "Generations begun.",
            queries.new_generations("$__range", queries.OF_GROUP),
            Look(steps=((None, GREEN), (2, ORANGE), (STORM_REBALANCES, RED))),
        ),
    ]


def _over_time() -> list[object]:
    return [
        timeline(
            "State",
            "PreparingRebalance waits for members to join, CompletingRebalance for the leader's assignment.",
            Query(queries.state_number(), "{{group}}"),
            STATES,
        ),
        series(
            "Heartbeat headroom of the worst member",
            "The share of its session timeout left; at risk below a third, expired at zero.",
            Query(_worst(metrics.GROUP_HEADROOM, "min"), "least"),
            look=Look(RATIO, HEADROOM, 0, 1),
        ),
        series(
            "Poll headroom of the worst member",
            "The share of max.poll.interval.ms left, as clients report it; at risk below a fifth, at zero it leaves.",
            Query(_worst(metrics.GROUP_POLL_HEADROOM, "min"), "least"),
            look=Look(RATIO, POLL_HEADROOM, 0, 1),
        ),
        series(
            "Generation",
            "Each step is a rebalance; many steps in a row are a storm.",
            Query(_worst(metrics.GROUP_GENERATION), "generation"),
        ),
        series(
            "Members",
            "A dip is a member that left or expired.",
            Query(_worst(metrics.GROUP_MEMBERS), "members"),
            look=Look(low=0),
        ),
        series(
            "Rebalances in 10 minutes",
            f"Generations begun in the 10 minutes before; {STORM_REBALANCES} are a storm.",
            Query(queries.new_generations("10m", queries.OF_GROUP), "rebalances"),
            look=Look(steps=((None, GREEN), (STORM_REBALANCES, RED)), low=0),
        ),
    ]


def _lag() -> list[object]:
    return [*_lag_now(), *_lag_by_topic(), _partitions()]


def _lag_now() -> list[object]:
    some = Look(steps=((None, GREEN), (1, ORANGE)))
    return [
        number("Lag", "Messages that the group has not committed.", _worst(lag_metrics.GROUP_LAG)),
        number(
            "Longest wait",
            "How long the oldest message that it has not committed has waited, at the least.",
            _worst(lag_metrics.GROUP_LAG_TIME),
            Look("s"),
        ),
        number(
            "Lag status",
            "The worst known of its partitions, by Burrow's rules.",
            _worst(lag_metrics.GROUP_LAG_STATUS),
            STATUSES,
        ),
        number(
            "Stalled partitions",
            "Their owner is alive and has not committed them for far longer than usual.",
            _worst(lag_metrics.GROUP_STALLED),
            some,
        ),
        number(
            "Partitions of unknown lag",
            "They are not in the lag: nothing was committed, or an offset is not known.",
            _worst(lag_metrics.GROUP_LAG_UNKNOWN),
            some,
        ),
        number(
            "Offset commits a second",
            "A commit of several partitions counts for each of them.",
            f"max by (cluster, group) (rate({lag_metrics.GROUP_COMMITS}{{{queries.OF_GROUP}}}[$__rate_interval]))",
            Look("cps"),
        ),
    ]


def _lag_by_topic() -> list[object]:
    def worst(metric: str) -> Query:
        return Query(f"topk({SHOWN}, max by (topic) ({metric}{{{queries.OF_GROUP}}}))", "{{topic}}")

    def slope(metric: str, what: str) -> Query:
        return Query(f"topk({SHOWN // 2}, {queries.slope(metric, 'topic')})", f"{{{{topic}}}} {what}")

    return [
        series(
            "Lag, by topic",
            "Messages that the group has not committed.",
            worst(lag_metrics.TOPIC_LAG),
            look=Look(low=0),
            span=8,
        ),
        series(
            "Longest wait, by topic",
            "How long the oldest message that is not committed has waited, at the least.",
            worst(lag_metrics.TOPIC_LAG_TIME),
            look=Look("s", low=0),
            span=8,
        ),
        series(
            "Written and committed, by topic",
            "Messages a second. If less is committed than written, the lag grows; below zero, offsets went back.",
            slope(lag_metrics.TOPIC_END, "written"),
            slope(lag_metrics.TOPIC_COMMITTED, "committed"),
            look=Look("cps"),
            span=8,
        ),
        timeline(
            "Status, by topic",
            "The worst known status of the group's partitions of a topic.",
            worst(lag_metrics.TOPIC_LAG_STATUS),
            STATUSES,
            span=12,
            height=9,
        ),
        listing(
            "Stalled partitions, by topic",
            "Their owner is alive and has not committed them for far longer than usual; the group's page names them.",
            f"topk({SHOWN}, max by (topic) ({lag_metrics.TOPIC_STALLED}{{{queries.OF_GROUP}}}))",
            "partitions",
            Look(steps=((None, GREEN), (1, ORANGE))),
        ),
    ]


def _partitions() -> object:
    def of(metric: str) -> str:
        return f"max by (topic, partition) ({metric}{{{queries.OF_GROUP}}})"

    most = f"topk({SHOWN}, {of(lag_metrics.PARTITION_LAG)})"
    return columns(
        "Partitions with the largest lag",
        f"The {SHOWN} worst. Needs partition_metrics = true in [serve]; the group's page has them in any case, with "
        "owner, host and last commit.",
        {
            "lag": (most, PLAIN),
            "waits": (f"{of(lag_metrics.PARTITION_LAG_TIME)} and {most}", Look("s")),
            "status": (f"{of(lag_metrics.PARTITION_LAG_STATUS)} and {most}", STATUSES),
            "committed": (f"{of(lag_metrics.PARTITION_COMMITTED)} and {most}", PLAIN),
            "end": (f"{of(lag_metrics.PARTITION_END)} and {most}", PLAIN),
        },
        worst_by="lag",
    )


def _members() -> list[object]:
    def least(metric: str) -> str:
        return f"min by (client_id, client_host) ({metric}{{{queries.OF_GROUP}}})"

    bound = (
        f"Only those among the {metrics.MEMBER_SERIES} worst off of all groups; all members are on the group's page."
    )
    return [
        listing(
            "Least heartbeat headroom, by client and host",
            f"The share of its session timeout that a member has left. {bound}",
            least(metrics.MEMBER_HEADROOM),
            "headroom",
            Look(RATIO, HEADROOM, 0, 1),
        ),
        listing(
            "Least poll headroom, by client and host",
            f"The share of max.poll.interval.ms that a member has left, as its client tells. {bound}",
            least(metrics.MEMBER_POLL_HEADROOM),
            "headroom",
            Look(RATIO, POLL_HEADROOM, 0, 1),
        ),
    ]


def _rebalances() -> list[object]:
    slow_s = Thresholds().rebalance_slow_ms / 1_000
    return [
        series(
            "Phase of the rebalance",
            "How long the current phase has lasted: join (members rejoin), sync (the leader assigns), or "
            "reconciliation (partitions are handed over). Phases between two scrapes are not seen.",
            Query(queries.phase_ages("phase", where=queries.OF_GROUP), "{{phase}}"),
            look=Look("s", ((None, GREEN), (slow_s, RED)), low=0),
        ),
        listing(
            "Waited for in the time shown",
            "Clients and hosts that a rebalance waited for, as far as heartbeats show, and how many members of each at "
            "most; ids are on the group's page.",
            queries.waited_for(queries.OF_GROUP),
            "members",
        ),
        series(
            "Partitions moved",
            "How many partitions the newest generation took from one member and gave to another; nothing for a group "
            "that has not rebalanced for long.",
            Query(_worst(metrics.GROUP_MOVED), "partitions"),
            look=Look(low=0),
            span=WIDTH,
        ),
    ]


def _incidents() -> list[object]:
    by_rule = queries.total(metrics.GROUP_INCIDENTS, "rule", where=queries.OF_GROUP)
    return [
        listing(
            "Open now",
            "The rule that is broken, and for how long.",
            queries.incident_ages(queries.OF_GROUP),
            "open for",
            Look("s"),
        ),
        timeline(
            "Incidents open, by rule",
            "How many incidents of a rule were open, when.",
            Query(by_rule, "{{rule}}"),
            Look(steps=((None, GREEN), (1, ORANGE), (3, RED))),
            span=12,
            height=9,
        ),
    ]


def _worst(metric: str, function: str = "max") -> str:
    return f"{function} by (cluster, group) ({metric}{{{queries.OF_GROUP}}})"
