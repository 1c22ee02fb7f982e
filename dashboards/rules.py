"""Alert rules for users who alert on metrics. The files for Prometheus and for Grafana are both made from them.

Templates use `{{ .Labels.group }}`, never `$labels`: both systems know the former, and Grafana may take a `$` in a
provisioning file for an environment variable.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from dashboards import queries
from dashboards.files import FOLDER, PUBLIC_URL
from streaming.serve import lag_metrics, metrics

GRAFANA_DATASOURCE: Final = "group-monitor-prometheus"
"""The uid that `deploy/grafana/provisioning` gives the data source."""
LOOK_BACK_S: Final = 600
RUNBOOKS: Final = f"{PUBLIC_URL}/rules/{{rule}}"
SAME: Final[Mapping[str, str]] = MappingProxyType({})
"""No severity is renamed."""
_EVERYWHERE: Final = 'cluster!=""'
ENOUGH_INCIDENTS: Final = 10
"""Fewer incidents say nothing about how late they are found: some rules are late by design."""


@dataclass(frozen=True)
class Rule:
    """An alert rule, which fires if `expr` has been beyond `limit` for `for_s`."""

    name: str
    severity: Literal["info", "warn", "page"]
    expr: str
    limit: float
    for_s: int
    summary: str
    description: str
    runbook: str
    """The page of `docs/rules` that says what to do."""
    beyond: Literal[">", "<"] = ">"

    def annotations(self, runbooks: str = RUNBOOKS) -> dict[str, str]:
        """Return the annotations of an alert; `runbooks`: the address of a rule's page, with `{rule}` for its name."""
        return {
            "summary": self.summary,
            "description": self.description,
            "runbook_url": runbooks.replace("{rule}", self.runbook),
        }


def _grown(metric: str, window: str, *by: str) -> str:
    """Return how much a counter grew within a window."""
    return queries.increase(metric, *by, window=window, where=_EVERYWHERE)


RULES: Final = (
    Rule(
        "GroupMonitorMissing",
        "page",
        f"(count({metrics.RUN_ALIVE_AGE}) or vector(0))",
        1,
        120,
        "No run has written to the store, or serve is not scraped",
        "Nothing is watched. Look at the scrape of serve first, then at run.",
        "monitor-stalled",
        beyond="<",
    ),
    Rule(
        "GroupMonitorStalled",
        "page",
        f"max by (cluster) ({metrics.STALLED})",
        0,
        30,
        "run of {{ .Labels.cluster }} gives no sign of life",
        "No incident of this cluster is found until it is back; what it missed is then raised, marked late.",
        "monitor-stalled",
    ),
    Rule(
        "GroupMonitorBehind",
        "warn",
        f"max by (cluster) ({metrics.SHARD_PROGRESS_AGE})",
        30,
        120,
        "The monitor of {{ .Labels.cluster }} is behind",
        "Verdicts come late. A broker's telemetry stands still, or run cannot keep up: see dashboard monitor health.",
        "monitor-behind",
    ),
    Rule(
        "GroupMonitorLagOld",
        "warn",
        f"max by (cluster) ({lag_metrics.LAG_AGE})",
        60,
        120,
        "The lag of {{ .Labels.cluster }} is old",
        "End offsets are requested every 10 s, but the newest are over a minute old. Until newer ones come, no rule"
        " about lag finds anything.",
        "monitor-behind",
    ),
    Rule(
        "GroupTelemetryStalled",
        "warn",
        f"max by (cluster, broker) ({metrics.BROKER_PROGRESS_AGE})",
        30,
        60,
        "No telemetry line of {{ .Labels.broker }}",
        "The members of its groups turn unknown. Look at the broker, at its appender, and at the telemetry topic.",
        "telemetry-stalled",
    ),
    Rule(
        "GroupTelemetryUncovered",
        "info",
        f"min by (cluster, broker) ({metrics.BROKER_COVERED})",
        1,
        600,
        "Telemetry of {{ .Labels.broker }} has a gap",
        "Lines of it may be missing, so a silent member of its groups may be alive. Silence is not judged meanwhile.",
        "telemetry-uncovered",
        beyond="<",
    ),
    Rule(
        "GroupMonitorAlertsStuck",
        "page",
        f"max by (receiver) ({metrics.OUTBOX_AGE})",
        300,
        0,
        "Alerts to {{ .Labels.receiver }} are not delivered",
        "The oldest has waited for five minutes and more. The receiver does not answer, or refuses.",
        "alerts-undelivered",
    ),
    Rule(
        "GroupMonitorAlertsLost",
        "warn",
        f"max by (receiver) ({metrics.OUTBOX_DEAD}) - max by (receiver) (min_over_time({metrics.OUTBOX_DEAD}[1h]))",
        0,
        0,
        "Alerts to {{ .Labels.receiver }} were given up",
        "It refused them for 15 minutes, or it is no longer in [[notify]]; /api/v1/dead-letters of serve says which.",
        "alerts-undelivered",
    ),
    Rule(
        "GroupMonitorDetectionSlow",
        "warn",
        f"(histogram_quantile(0.9, {_grown(f'{metrics.DETECTION_DELAY}_bucket', '10m', 'cluster', 'le')})"
        f" and on (cluster) {_grown(f'{metrics.DETECTION_DELAY}_count', '10m', 'cluster')} >= {ENOUGH_INCIDENTS})",
        10,
        300,
        "Incidents of {{ .Labels.cluster }} are found late",
        f"Of {ENOUGH_INCIDENTS} incidents or more in 10 minutes, one in ten was found over 10 s after its deadline.",
        "monitor-behind",
    ),
    Rule(
        "GroupMonitorRefuted",
        "warn",
        _grown(metrics.INCIDENTS_REFUTED, "1h", "cluster"),
        0,
        0,
        "The monitor of {{ .Labels.cluster }} was wrong",
        "A broker accepted a member after its session was judged to have ended. Please report it, with a capture.",
        "monitor-refuted",
    ),
    Rule(
        "GroupMonitorRowsRejected",
        "info",
        _grown(metrics.ROWS_REJECTED, "10m", "cluster"),
        100,
        0,
        "Rows of {{ .Labels.cluster }} cannot be understood",
        "group-monitor quarantine shows the newest. Usually somebody else writes to a telemetry topic.",
        "rows-rejected",
    ),
    Rule(
        "ConsumerGroupIncidentPage",
        "page",
        f'max by (cluster, group, rule) ({metrics.GROUP_INCIDENTS_TOLD}{{severity="page"}})',
        0,
        0,
        "{{ .Labels.rule }}: group {{ .Labels.group }}",
        "Member, host and evidence are on the group's page. Not needed where serve notifies by itself.",
        "{{ .Labels.rule }}",
    ),
    Rule(
        "ConsumerGroupIncidentWarning",
        "warn",
        f'max by (cluster, group, rule) ({metrics.GROUP_INCIDENTS_TOLD}{{severity="warn"}})',
        0,
        60,
        "{{ .Labels.rule }}: group {{ .Labels.group }}",
        "Member, host and evidence are on the group's page. Not needed where serve notifies by itself.",
        "{{ .Labels.rule }}",
    ),
)


def prometheus_rules(severity_labels: Mapping[str, str] = SAME, runbooks: str = RUNBOOKS) -> dict[str, Any]:
    """Return Prometheus' rule file; `severity_labels` rename the values of the label `severity`."""
    rules = [
        {
            "alert": rule.name,
            "expr": f"{rule.expr} {rule.beyond} {rule.limit:g}",
            **({"for": f"{rule.for_s}s"} if rule.for_s else {}),
            "labels": {"severity": severity_labels.get(rule.severity, rule.severity)},
            "annotations": rule.annotations(runbooks),
        }
        for rule in RULES
    ]
    return {"groups": [{"name": "group-monitor", "rules": rules}]}


def grafana_rules(severity_labels: Mapping[str, str] = SAME, runbooks: str = RUNBOOKS) -> dict[str, Any]:
    """Return the provisioning file of alert rules for Grafana 10 to 13: query A, threshold C."""
    rules = [_grafana_rule(rule, severity_labels.get(rule.severity, rule.severity), runbooks) for rule in RULES]
    group = {"orgId": 1, "name": "group-monitor", "folder": FOLDER, "interval": "1m", "rules": rules}
    return {"apiVersion": 1, "groups": [group]}


def _grafana_rule(rule: Rule, severity: str, runbooks: str) -> dict[str, Any]:
    span = {"from": LOOK_BACK_S, "to": 0}
    query = {"refId": "A", "expr": rule.expr, "instant": True, "range": False}
    evaluator = {"type": "gt" if rule.beyond == ">" else "lt", "params": [rule.limit]}
    threshold = {"refId": "C", "type": "threshold", "expression": "A", "conditions": [{"evaluator": evaluator}]}
    return {
        "uid": rule.name.lower(),
        "title": rule.name,
        "condition": "C",
        "for": f"{rule.for_s}s",
        "noDataState": "OK",
        "execErrState": "Error",
        "labels": {"severity": severity},
        "annotations": rule.annotations(runbooks),
        "data": [
            {"refId": "A", "datasourceUid": GRAFANA_DATASOURCE, "relativeTimeRange": span, "model": query},
            {"refId": "C", "datasourceUid": "__expr__", "relativeTimeRange": span, "model": threshold},
        ],
    }
