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
    POLL_HEADROOM,
    RATIO,
    RED,
    WIDTH,
    YELLOW,
    Look,
    Query,
    board,
    cluster_variable,
    group_variable,
    listing,
    number,
    page_variable,
    series,
    timeline,
)
from streaming.serve import metrics

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
    """Show what `dashboards publish --incidents` left: beginning, end and words; off at first."""
    mine: Any = AnnotationTarget()  # the SDK's hints allow only a data source's query here
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
            f"sum({metrics.GROUP_INCIDENTS}{{{queries.OF_GROUP}}}) or vector(0)",
            Look(steps=ANY_IS_BAD),
        ),
        number(
            "Rebalances in the time shown",
            "Generations begun.",
            queries.new_generations("$__range", queries.OF_GROUP),
            Look(steps=((None, GREEN), (2, ORANGE), (5, RED))),
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
            "The share of its session timeout left; at risk below a third, expired at nothing.",
            Query(_worst(metrics.GROUP_HEADROOM, "min"), "least"),
            look=Look(RATIO, HEADROOM, 0, 1),
        ),
        series(
            "Poll headroom of the worst member",
            "The share of max.poll.interval.ms left, as clients tell it; at risk below a fifth, at nothing it leaves.",
            Query(_worst(metrics.GROUP_POLL_HEADROOM, "min"), "least"),
            look=Look(RATIO, POLL_HEADROOM, 0, 1),
        ),
        series(
            "Generation",
            "Each step is a rebalance; a steep stair is a storm.",
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
            "Generations begun in the 10 minutes before; five are a storm.",
            Query(queries.new_generations("10m", queries.OF_GROUP), "rebalances"),
            look=Look(steps=((None, GREEN), (5, RED)), low=0),
        ),
    ]


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
            "How long the phase that goes on has lasted: join (members rejoin), sync (the leader assigns), or "
            "reconciliation (partitions are handed over). Phases between two scrapes are not seen.",
            Query(queries.phase_ages("phase", where=queries.OF_GROUP), "{{phase}}"),
            look=Look("s", ((None, GREEN), (slow_s, RED)), low=0),
        ),
        listing(
            "Waited for in the time shown",
            "Clients and hosts that a rebalance waited for, as far as heartbeats tell, and how many members of each at "
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
    by_rule = f"sum by (rule) ({metrics.GROUP_INCIDENTS}{{{queries.OF_GROUP}}})"
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
