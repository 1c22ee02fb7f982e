"""What Grafana would ask Prometheus: every query of the rendered dashboards and rules, with its variables filled in."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dashboards import files
from dashboards.panels import UID
from dashboards.rules import RULES

BUILT_IN: Mapping[str, str] = {"__rate_interval": "20s", "__range": "5m"}


class Asked(NamedTuple):
    """A query, and where it stands."""

    place: str
    expr: str


def queries(**variables: str) -> Iterator[Asked]:
    """Every query; `variables` are those of the dashboards."""
    for uid, board in files.dashboards().items():
        name = uid.removeprefix(UID)
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield Asked(f"{name}: {panel['title']}", filled(target["expr"], variables))
        for annotation in board["annotations"]["list"]:
            if "expr" not in annotation:  # not asked of Prometheus
                continue
            yield Asked(f"{name}: annotation {annotation['name']}", filled(annotation["expr"], variables))
    for rule in RULES:
        yield Asked(f"rule: {rule.name}", rule.expr)


def variables() -> Iterator[tuple[str, str, str]]:
    """(place, series, label) of every `label_values(series, label)`."""
    for uid, board in files.dashboards().items():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                series, _, label = (
                    variable["definition"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
                )
                yield f"{uid.removeprefix(UID)}: ${variable['name']}", series, label


def filled(expr: str, variables: Mapping[str, str]) -> str:
    """Replace variables as Grafana does, the longest names first."""
    for name, value in sorted({**BUILT_IN, **variables}.items(), reverse=True):
        expr = expr.replace(f"${name}", value)
    return expr
