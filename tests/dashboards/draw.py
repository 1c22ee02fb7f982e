"""`python -m tests.dashboards.draw docs/group.svg`: panels of the group dashboard, drawn from a scenario's real data.

Not Grafana's drawing: the panel's own title, query, words, unit and thresholds, with what Prometheus answered.
"""

import html
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dashboards import files
from dashboards.panels import UID
from streaming.demo.setting import CLUSTER
from tests.dashboards import grafana
from tests.dashboards.scenario import ALL_WELL, GROUP, Played, play
from tests.support.waiting import await_true

SHOWN = (
    "State",
    "Heartbeat headroom of the worst member",
    "Poll headroom of the worst member",
    "Phase of the rebalance",
    "Partitions moved",
    "Members",
    "Rebalances in 10 minutes",
    "Incidents open, by rule",
)
WIDTH, LEFT, RIGHT = 900, 190, 20
ROW_HEIGHT, LINES_HEIGHT, GAP = 30, 90, 46
COLOURS = {"green": "#56a64b", "orange": "#ff9830", "red": "#e02f44", "yellow": "#f2cc0c", "text": "#8e8e8e"}
INK, PAPER = "#3d3d3d", "#ffffff"
LINES = ("#1f60c4", "#ff780a", "#8f3bb8")
GAP_S = 5
WELL_FOR_S = 30


def panels(played: Played) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """(panel, series) of those shown."""
    board = files.dashboards()[f"{UID}group"]
    for title in SHOWN:
        panel = next(
            p for p in board["panels"] if p["title"] == title and p["type"] in ("timeseries", "state-timeline")
        )
        series = []
        for target in panel["targets"]:
            found = played.ever(grafana.filled(target["expr"], {"cluster": CLUSTER, "group": GROUP}))
            series += [{"name": named(target["legendFormat"], one["metric"]), "values": one["values"]} for one in found]
        yield panel, series


def named(legend: str, labels: dict[str, str]) -> str:
    for name, value in labels.items():
        legend = legend.replace(f"{{{{{name}}}}}", value)
    return legend


def svg(drawn: list[tuple[dict[str, Any], list[dict[str, Any]]]]) -> str:
    """Draw panels below each other, on one time axis."""
    instants = [float(at) for _, series in drawn for one in series for at, _ in one["values"]]
    start, end = min(instants), max(instants)

    def across(at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (min(at, end) - start) / (end - start)

    parts, top = [], 10
    for panel, series in drawn:
        parts.append(text(LEFT, top + 14, panel["title"], size=14))
        if len(series) > 1 and panel["type"] == "timeseries":
            for place, one in enumerate(series):
                parts.append(text(WIDTH - RIGHT - 60 * place, top + 14, one["name"], anchor="end", colour=LINES[place]))
        draw = states if panel["type"] == "state-timeline" else lines
        height = ROW_HEIGHT * len(series) if draw is states else LINES_HEIGHT
        parts += draw(panel, series, across, top + 22)
        top += height + GAP
    for step in range(6):
        at = start + (end - start) * step / 5
        parts.append(text(across(at), top, time.strftime("%H:%M:%S", time.gmtime(at)), anchor="middle"))
    size = f'width="{WIDTH + RIGHT}" height="{top + 14}"'  # the last instant's word reaches beyond the panels
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    return "\n".join([head, f'<rect width="100%" height="100%" fill="{PAPER}"/>', *parts, "</svg>\n"])


def states(panel: dict[str, Any], series: list[dict[str, Any]], across: Any, top: float) -> Iterator[str]:
    """A bar a series, a colour a state, a word where there is room for it."""
    mappings = panel["fieldConfig"]["defaults"].get("mappings") or [{"options": {}}]
    for row, one in enumerate(series):
        y = top + row * ROW_HEIGHT
        yield text(LEFT - 8, y + 17, one["name"], anchor="end")
        for value, since, until in stretches(one["values"]):
            word = mappings[0]["options"].get(value, {"text": value, "color": threshold(panel, float(value))})
            x, width = across(since), max(2.0, across(until) - across(since))
            colour = COLOURS.get(word["color"], INK)
            yield f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW_HEIGHT - 6}" fill="{colour}"/>'
            if width > 8 * len(word["text"]):
                yield text(x + width / 2, y + 17, word["text"], anchor="middle", colour=PAPER)


def lines(panel: dict[str, Any], series: list[dict[str, Any]], across: Any, top: float) -> Iterator[str]:
    """A line a series, and dashes where a threshold is."""
    defaults = panel["fieldConfig"]["defaults"]
    values = [float(value) for one in series for _, value in one["values"]]
    high = defaults.get("max") or max([*values, 1]) * 1.1
    shown = (lambda value: f"{value:.0%}") if defaults["unit"] == "percentunit" else (lambda value: f"{value:g}")

    def down(value: float) -> float:
        return top + LINES_HEIGHT * (1 - value / high)

    for value in (0, round(high, 1) if high < 1 else int(high)):
        yield text(LEFT - 8, down(value) + 4, shown(value), anchor="end")
        yield f'<path d="M{LEFT} {down(value):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>'
    steps = defaults["thresholds"]["steps"]
    for step in steps[1:]:
        if step["value"] < high:
            y, colour = down(step["value"]), COLOURS[step["color"]]
            yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{colour}" stroke-dasharray="6 4"/>'
    for place, one in enumerate(series):
        for run in runs(one["values"]):
            points = " ".join(f"{across(float(at)):.1f},{down(float(value)):.1f}" for at, value in run)
            style = f'fill="none" stroke="{LINES[place]}" stroke-width="1.5" stroke-linecap="round"'
            yield f'<polyline points="{points}" {style}/>'


def runs(values: list[list[Any]]) -> Iterator[list[list[Any]]]:
    """The values without a gap between them."""
    run = values[:1]
    for before, value in itertools.pairwise(values):
        if float(value[0]) - float(before[0]) > GAP_S:
            yield run
            run = []
        run.append(value)
    yield run


def stretches(values: list[list[Any]]) -> Iterator[tuple[str, float, float]]:
    """(value, since, until) of runs of equal values without a gap."""
    since = previous = float(values[0][0])
    current = values[0][1]
    for at, value in values[1:]:
        if value != current or float(at) - previous > GAP_S:
            yield current, since, previous + 1
            current, since = value, float(at)
        previous = float(at)
    yield current, since, previous + 1


def threshold(panel: dict[str, Any], value: float) -> str:
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    return [step["color"] for step in steps if step["value"] is None or step["value"] <= value][-1]


def text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, colour: str = INK) -> str:
    words = html.escape(words)
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{words}</text>'


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, play(Path(folder)) as played:
        recovered = f"count_over_time(({ALL_WELL})[{WELL_FOR_S}s:1s]) >= {WELL_FOR_S}"
        await_true(lambda: played.asking.now(recovered), timeout_s=120)
        Path(sys.argv[1]).write_text(svg(list(panels(played))), encoding="utf-8")
