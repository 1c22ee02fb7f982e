"""What Grafana would ask Prometheus: every query of the rendered dashboards and rules, with its variables filled in."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from dashboards import files
from dashboards.panels import UID
from dashboards.rules import RULES

BUILT_IN: Mapping[str, str] = {"__rate_interval": "20s", "__range": "5m"}
_VARIABLE = re.compile(r"\$\{(?P<raw>\w+):raw\}|\$(?P<name>\w+)")
_METACHARACTERS = re.compile(r"[$^*{}\[\]+?.()|]")


class Asked(NamedTuple):
    """A query, and where it stands."""

    place: str
    expr: str


def queries(**variables: str) -> Iterator[Asked]:
    """Every query; `variables` are those of the dashboards."""
    for uid, board in files.dashboards().items():
        name = uid.removeprefix(UID)
        several = {variable["name"] for variable in board["templating"]["list"] if variable.get("multi")}
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                yield Asked(f"{name}: {panel['title']}", filled(target["expr"], variables, several))
        for annotation in board["annotations"]["list"]:
            if "expr" not in annotation:  # not asked of Prometheus
                continue
            yield Asked(f"{name}: annotation {annotation['name']}", filled(annotation["expr"], variables, several))
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


def filled(expr: str, variables: Mapping[str, str], several: Collection[str] = ()) -> str:
    """Replace variables as Grafana does, escaped as its Prometheus data source does unless a format is named.

    grafana/grafana, packages/grafana-prometheus/src/escaping.ts, its "classic behavior"; `several` names the variables
    of which several can be chosen, whose values are therefore made regular expressions.
    """

    def value(found: re.Match[str]) -> str:
        if found["raw"]:
            return variables[found["raw"]]
        name = found["name"]
        if name in BUILT_IN:
            return BUILT_IN[name]
        if name in several:
            return _METACHARACTERS.sub(r"\\\\\g<0>", variables[name].replace("\\", 4 * "\\"))
        return variables[name].replace("\\", 2 * "\\").replace("'", "\\\\'")

    return _VARIABLE.sub(value, expr)
