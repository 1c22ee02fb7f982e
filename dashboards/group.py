"""*Group*: one group's states, generations, members, headroom and incidents."""

from typing import Any

from grafana_foundation_sdk.builders.dashboard import AnnotationQuery, AnnotationTarget, Dashboard, DashboardLink
from grafana_foundation_sdk.models.common import DataSourceRef
from grafana_foundation_sdk.models.dashboard import DashboardLinkType

from coordinator_model.states import GroupState
from dashboards import queries
from dashboards.files import TAG
from dashboards.links import GROUP
from dashboards.panels import (
    ANY_IS_BAD,
    GREEN,
    GREY,
    HEADROOM,
    ORANGE,
    RATIO,
    RED,
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
        rows={"Now": _now(), "Over time": _over_time(), "Incidents": _incidents()},
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
    mine.type("tags").tags([TAG, "cluster:$cluster", "group:$group"]).limit(100).match_any(False)
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
