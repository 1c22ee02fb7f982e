"""The rendered files: equal to the code, about metrics that exist, complete for the reader."""

import itertools
import re

import pytest
from click.testing import CliRunner

from dashboards import files, render
from dashboards.panels import UID
from dashboards.render import SCHEMA_VERSION, rendered, write
from streaming.commands.dashboards import dashboards_command
from streaming.serve import metrics

BOARDS = files.dashboards()
METRIC = re.compile(rf"group_monitor_\w+(?<!{UID})")
HISTOGRAMS = (metrics.BATCH_DURATION, metrics.DETECTION_DELAY)
BUILT_IN = {"row", "stat", "timeseries", "state-timeline", "table", "heatmap"}
SHOWN_NOWHERE: dict[str, str] = {
    metrics.GROUP_STATE: "for alert rules of your own; panels group by the label of _info",
    metrics.BUILD_INFO: "for inventories",
    metrics.END_OFFSETS_UNANSWERED: "for whoever asks why lags are old, which the age of the lag shows",
}
"""Metric -> why no panel and no rule shows it."""


def panels():
    for uid, board in BOARDS.items():
        for panel in board["panels"]:
            if panel["type"] != "row":
                yield pytest.param(panel, id=f"{uid.removeprefix(UID)}: {panel['title']}")


PANELS = list(panels())


def queried(text: str) -> set[str]:
    """Names of our metrics in some PromQL; a histogram's parts count as the histogram."""
    names = set(METRIC.findall(text))
    return {next((h for h in HISTOGRAMS if name in (f"{h}_bucket", f"{h}_count")), name) for name in names}


def test_what_is_committed_is_what_the_code_makes():
    committed = {path.name: path.read_text(encoding="utf-8") for path in files.RENDERED.iterdir()}
    assert committed == rendered(), "run `group-monitor dashboards render`"


def test_in_another_folder_render_leaves_what_it_does_not_make(tmp_path):
    (tmp_path / "my-own-rules.yml").write_text("groups: []")
    (tmp_path / "folder").mkdir()
    assert {path.name for path in write(tmp_path)} == rendered().keys()
    assert {path.name for path in tmp_path.iterdir()} == {"my-own-rules.yml", "folder", *rendered()}


def test_render_touches_only_what_differs_and_removes_what_nobody_makes_any_more(tmp_path, monkeypatch):
    monkeypatch.setattr(render, "RENDERED", tmp_path)
    assert len(write(tmp_path)) == len(rendered())
    assert write(tmp_path) == []
    (tmp_path / "old.json").write_text("{}")
    (tmp_path / "fleet.json").write_text("{}")
    assert {path.name for path in write(tmp_path)} == {"old.json", "fleet.json"}
    assert {path.name for path in tmp_path.iterdir()} == rendered().keys()


def rendered_by_command(folder, *options) -> str:
    done = CliRunner().invoke(dashboards_command, ["render", "--out", str(folder), *options])
    assert done.exit_code == 0, done.output
    return "".join(path.read_text() for path in folder.iterdir())


def test_links_lead_to_where_people_find_serve(tmp_path):
    text = rendered_by_command(tmp_path, "--monitor", "https://monitor.example/kafka/")
    assert files.PUBLIC_URL not in text
    assert "runbook_url: https://monitor.example/kafka/rules/monitor-stalled\n" in text
    assert '"query": "https://monitor.example/kafka"' in text


def test_alerts_may_link_to_runbooks_that_do_not_need_serve(tmp_path):
    text = rendered_by_command(tmp_path, "--rules-url", "https://wiki.example/rules")
    assert "runbook_url: https://wiki.example/rules/monitor-stalled.md\n" in text
    assert f"runbook_url: {files.PUBLIC_URL}" not in text


@pytest.mark.parametrize("address", ["monitor.example", 'https://monitor.example/"', "https://monitor.example #x"])
def test_an_address_that_would_break_a_file_is_refused(tmp_path, address):
    done = CliRunner().invoke(dashboards_command, ["render", "--out", str(tmp_path), "--monitor", address])
    assert done.exit_code == 2
    assert "give http://HOST:PORT or https://HOST[/PATH]" in done.output
    assert list(tmp_path.iterdir()) == []


def test_every_metric_queried_is_exported():
    for name, text in rendered().items():
        assert queried(text) <= metrics.HELP.keys(), name


def test_every_metric_exported_is_shown_or_said_why_not():
    shown = set().union(*map(queried, rendered().values()))
    assert metrics.HELP.keys() - shown == SHOWN_NOWHERE.keys()


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_says_what_it_shows(panel):
    defaults = panel["fieldConfig"]["defaults"]
    assert panel["description"].endswith(".")
    assert defaults["unit"]
    assert defaults["noValue"]
    assert defaults["thresholds"]["steps"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_stays_readable_with_ten_thousand_groups(panel):
    """A series a group only of one group, or of the worst few."""
    for target in panel["targets"]:
        expr = target["expr"]
        by_group = re.match(r"\(?(max|min|sum) by \(cluster, group", expr)
        assert not by_group or "group=`${group:raw}`" in expr, expr


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_dashboard_is_one_for_grafana_10_to_13(board):
    """The classic model with panels that all of them have built in; the new one is told by `kind` and `spec`."""
    assert board["schemaVersion"] == SCHEMA_VERSION
    assert not {"kind", "spec", "apiVersion", "elements"} & board.keys()
    assert {panel["type"] for panel in board["panels"]} <= BUILT_IN
    assert {variable["type"] for variable in board["templating"]["list"]} <= {"datasource", "query", "textbox"}


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_newer_grafana_finds_nothing_to_migrate(board):
    """Else it would never be what we say. Versions 39 to 43, apps/dashboard/pkg/migration/schemaversion/v*.go there."""
    assert isinstance(board["refresh"], str)
    text = rendered()[board["uid"].removeprefix(UID) + ".json"]
    assert not {word for word in ("timeSeriesTable", "time_options", "hideFrom", "formatTime") if word in text}


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_dashboard_fits_its_grid(board):
    places = [panel["gridPos"] for panel in board["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in itertools.combinations(places, 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_links_lead_to_dashboards_and_variables_that_are_there(board):
    text = rendered()[board["uid"].removeprefix(UID) + ".json"]
    assert set(re.findall(r"/d/([\w-]+)", text)) <= BOARDS.keys()
    variables = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"datasource"}
    assert {name for name in used if not name.startswith("__")} <= variables
