"""Our few kinds of panels, and what all dashboards have in common. Classic dashboard model, Grafana 10 to 13.

Every panel has a title, a description, a unit and a text for "no data". `queries` has the expressions.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from coordinator_model.thresholds import Thresholds
from dashboards import queries
from dashboards.files import PUBLIC_URL, TAG
from streaming.serve import metrics

DATASOURCE: Final = common_models.DataSourceRef(type_val="prometheus", uid="${datasource}")
UID: Final = "group-monitor-"
WIDTH: Final = 24
NO_DATA: Final = "no data"
MARKS: Final = 100  # annotations at a time; nobody could distinguish more
RATIO: Final = "percentunit"

GREEN: Final = "green"
YELLOW: Final = "yellow"
ORANGE: Final = "orange"
RED: Final = "red"
GREY: Final = "text"

P = TypeVar("P")
Steps = Sequence[tuple[float | None, str]]
NEUTRAL: Final[Steps] = ((None, GREY),)
ANY_IS_BAD: Final[Steps] = ((None, GREEN), (1, RED))
HEADROOM: Final[Steps] = ((None, RED), (1 / 3, ORANGE), (0.5, GREEN))
"""`session-at-risk` begins when a third is left."""
STORM_REBALANCES: Final = Thresholds().storm_rebalances
POLL_HEADROOM: Final[Steps] = ((None, RED), (round(1 - Thresholds().poll_at_risk_ratio, 3), ORANGE), (0.5, GREEN))
"""`poll-at-risk` begins when a fifth is left."""


class Query(NamedTuple):
    """One expression and the legend of its series."""

    expr: str
    legend: str = ""


class Look(NamedTuple):
    """How numbers are shown: unit, thresholds with colors, range, and texts instead of numbers."""

    unit: str = "short"
    steps: Steps = NEUTRAL
    low: float | None = None
    high: float | None = None
    words: Mapping[str, tuple[str, str]] = {}
    """Value -> (text, colour)."""


PLAIN: Final = Look()


def number(title: str, description: str, expr: str, look: Look = PLAIN, *, span: int = 4) -> stat.Panel:
    """Show the current value as one number."""
    options = common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)
    panel = stat.Panel().with_target(_target("A", Query(expr), instant=True)).reduce_options(options)
    panel.graph_mode(common_models.BigValueGraphMode.NONE).color_mode(common_models.BigValueColorMode.VALUE)
    return _framed(panel, title, description, look, span, 4)


def series(
    title: str, description: str, *queries: Query, look: Look = PLAIN, span: int = 12, stacked: bool = False
) -> timeseries.Panel:
    """Show numbers over time, the largest on top of the legend."""
    legend = common.VizLegendOptions().display_mode(common_models.LegendDisplayMode.TABLE).show_legend(True)
    legend.placement(common_models.LegendPlacement.RIGHT if span > 12 else common_models.LegendPlacement.BOTTOM)
    legend.calcs(["max", "lastNotNull"]).sort_by("Max").sort_desc(True)
    tooltip = (
        common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI).sort(common_models.SortOrder.DESCENDING)
    )
    panel = timeseries.Panel().legend(legend).tooltip(tooltip).line_width(1).fill_opacity(20 if stacked else 0)
    panel.color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    if stacked:
        panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
    if len(look.steps) > 1:
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(common_models.GraphThresholdsStyleMode.DASHED))
    for place, query in enumerate(queries):
        panel.with_target(_target(chr(ord("A") + place), query))
    return _framed(panel, title, description, look, span, 9)


def timeline(
    title: str, description: str, query: Query, look: Look, *, span: int = WIDTH, height: int = 5
) -> statetimeline.Panel:
    """Show states over time."""
    panel = statetimeline.Panel().with_target(_target("A", query)).merge_values(True).row_height(0.8).line_width(0)
    panel.show_value(common_models.VisibilityMode.AUTO).fill_opacity(80)
    return _framed(panel, title, description, look, span, height)


def listing(
    title: str,
    description: str,
    expr: str,
    value: str,
    look: Look = PLAIN,
    *,
    links: Mapping[str, str] = {},
    span: int = 12,
) -> table.Panel:
    """Show one row per series, the worst first: its labels and, in the column `value`, its value.

    `links`: column -> URL. The worst is the largest value, or the smallest if the look shows that one in red.
    """
    least_is_worst = look.steps[0][1] == RED
    panel = table.Panel().with_target(_target("A", Query(expr), instant=True, form=PromQueryFormat.TABLE))
    renamed = {"excludeByName": {"Time": True}, "renameByName": {"Value": value}}
    panel.with_transformation(models.DataTransformerConfig(id_val="organize", options=renamed))
    panel.sort_by([common.TableSortByFieldState().display_name(value).desc(not least_is_worst)])
    for column, url in links.items():
        link = {"title": f"{column.capitalize()} ${{__value.text}}", "url": url}
        panel.override_by_name(column, [models.DynamicConfigValue(id_val="links", value=[link])])
    panel.override_by_name("severity", [models.DynamicConfigValue(id_val="mappings", value=_SEVERITIES), _COLOURED])
    return _framed(panel, title, description, look, span, 9)


def columns(
    title: str, description: str, values: Mapping[str, tuple[str, Look]], *, worst_by: str, span: int = WIDTH
) -> table.Panel:
    """Show one row per set of labels, with a column for each expression; the largest `worst_by` comes first."""
    panel = table.Panel()
    renamed = {}
    for place, (name, (expr, look)) in enumerate(values.items()):
        ref = chr(ord("A") + place)
        panel.with_target(_target(ref, Query(expr), instant=True, form=PromQueryFormat.TABLE))
        renamed[f"Value #{ref}"] = name
        shown = [models.DynamicConfigValue(id_val="unit", value=look.unit)]
        if look.words:
            shown.append(models.DynamicConfigValue(id_val="mappings", value=[_words(look.words)]))
        panel.override_by_name(name, shown)
    panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    organized = {"excludeByName": {"Time": True}, "renameByName": renamed}
    panel.with_transformation(models.DataTransformerConfig(id_val="organize", options=organized))
    panel.sort_by([common.TableSortByFieldState().display_name(worst_by).desc(True)])
    return _framed(panel, title, description, PLAIN, span, 9)


def buckets(title: str, description: str, histogram: str, where: str, *, span: int = 12) -> heatmap.Panel:
    """Show the distribution of a histogram's observations over time."""
    expr = queries.increase(f"{histogram}_bucket", "le", window="$__rate_interval", where=where)
    panel = heatmap.Panel().with_target(_target("A", Query(expr, "{{le}}"), form=PromQueryFormat.HEATMAP))
    panel.calculate(False).y_axis(heatmap.YAxisConfig().unit("s")).show_legend()
    panel.color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(64))
    return _framed(panel, title, description, Look(), span, 9)


def board(
    name: str,
    title: str,
    description: str,
    *,
    variables: Sequence[Any],
    incidents: str,
    rows: Mapping[str, Sequence[Any]],
) -> dashboard.Dashboard:
    """Build a dashboard: panel ids in order, links to our other dashboards, chosen incidents as annotations."""
    built = dashboard.Dashboard(title).uid(UID + name).description(description).tags([TAG]).editable()
    built.time("now-1h", "now").refresh("30s").tooltip(models.DashboardCursorSync.CROSSHAIR).timezone("browser")
    sisters = dashboard.DashboardLink("Group monitor").type(models.DashboardLinkType.DASHBOARDS).tags([TAG])
    built.link(sisters.include_vars(True).keep_time(True).as_dropdown(False))
    built.annotation(_incidents(incidents))
    for variable in (datasource_variable(), *variables):
        built.with_variable(variable)
    panel_id = 0
    for heading, panels in rows.items():
        panel_id += 1
        built.with_row(dashboard.Row(heading).id(panel_id))
        for panel in panels:
            panel_id += 1
            built.with_panel(panel.id(panel_id))
    return built


def datasource_variable() -> dashboard.DatasourceVariable:
    """Let people choose the Prometheus data source."""
    return dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def cluster_variable(*, all_of_them: bool = True) -> dashboard.QueryVariable:
    """Let people choose Kafka clusters; all are chosen by default unless `all_of_them` is False."""
    variable = _query_variable("cluster", f"label_values({metrics.RUN_ALIVE_AGE}, cluster)").label("Cluster")
    if not all_of_them:
        return variable
    everything = models.VariableOption(selected=True, text=["All"], value=["$__all"])
    return variable.multi(True).include_all(True).all_value(".*").current(everything)


def group_variable() -> dashboard.QueryVariable:
    """Let people choose a group of the cluster."""
    query = f'label_values({metrics.GROUP_INFO}{{cluster="$cluster"}}, group)'
    return _query_variable("group", query).label("Group")


def page_variable() -> dashboard.TextBoxVariable:
    """Let people enter the address of `serve` that a browser can reach."""
    return (
        dashboard.TextBoxVariable("monitor")
        .label("Monitor's pages")
        .default_value(PUBLIC_URL)
        .current(models.VariableOption(selected=True, text=PUBLIC_URL, value=PUBLIC_URL))
    )


def _incidents(where: str) -> dashboard.AnnotationQuery:
    """Mark the newest incidents at the instant they began: the value of the series, not the time of the scrape."""
    opened = f"max by (cluster, group, rule, severity) ({metrics.GROUP_INCIDENT_OPENED}{{{where}}})"
    began = f"topk({MARKS}, {opened}) * 1000"
    marks = dashboard.AnnotationQuery().name("Incidents").datasource(DATASOURCE).enable(True).icon_color(RED)
    marks.expr(began).use_value_for_time(True).step("30s")
    return marks.title_format("{{rule}}").text_format("{{cluster}} {{group}}").tag_keys("rule,severity")


def _query_variable(name: str, query: str) -> dashboard.QueryVariable:
    asked: dict[str, object] = {"query": query, "refId": name}
    return (
        dashboard.QueryVariable(name)
        .datasource(DATASOURCE)
        .query(asked)
        .definition(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )


def _target(
    ref: str, query: Query, *, instant: bool = False, form: PromQueryFormat = PromQueryFormat.TIME_SERIES
) -> prometheus.Dataquery:
    target = (
        prometheus.Dataquery()
        .ref_id(ref)
        .datasource(DATASOURCE)
        .expr(query.expr)
        .legend_format(query.legend)
        .format(form)
    )
    return target.instant() if instant else target.range()


def _framed(panel: P, title: str, description: str, look: Look, span: int, height: int) -> P:
    """Set on a panel what all panels have."""
    any_panel: Any = panel  # the SDK's builders share these methods, but no base class
    any_panel.title(title).description(description).datasource(DATASOURCE).span(span).height(height)
    steps = [models.Threshold(value=value, color=colour) for value, colour in look.steps]
    any_panel.unit(look.unit).no_value(NO_DATA)
    any_panel.thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    if look.low is not None:
        any_panel.min(look.low)
    if look.high is not None:
        any_panel.max(look.high)
    if look.words:
        any_panel.mappings([_words(look.words)])
    return panel


def _words(words: Mapping[str, tuple[str, str]]) -> models.ValueMap:
    options = {
        value: models.ValueMappingResult(text=text, color=colour, index=place)
        for place, (value, (text, colour)) in enumerate(words.items())
    }
    return models.ValueMap(options=options)


_SEVERITIES: Final = [_words({"page": ("page", RED), "warn": ("warn", ORANGE), "info": ("info", "blue")})]
_COLOURED: Final = models.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"})
