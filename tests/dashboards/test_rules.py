"""The alert rules, by Prometheus' own judge: each fires when it should, and is quiet when it should be."""

import json
import re
import shutil
import subprocess

import pytest

from dashboards import files, queries
from dashboards.render import rendered
from dashboards.rules import RULES, grafana_rules, prometheus_rules
from streaming.serve import lag_metrics, metrics

PROMTOOL = shutil.which("promtool")
RULE_FILE = files.RENDERED / "prometheus-rules.yml"
CLUSTER = {"cluster": "prod"}
BROKER = {**CLUSTER, "broker": "broker-1"}
GROUP = {**CLUSTER, "group": "orders"}
RECEIVER = {"receiver": "webhook"}
LATE = {"cluster": "prod", "le": "+Inf"}

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on PATH (Debian: prometheus)")

CASES = {
    # rule: (metric, labels of its series, values that fire, values that do not, minute to ask at, labels of the alert)
    "GroupMonitorMissing": (metrics.RUN_ALIVE_AGE, CLUSTER, "_x20", "1x20", 10, {}),
    "GroupMonitorStalled": (metrics.STALLED, CLUSTER, "1x20", "0x20", 10, CLUSTER),
    "GroupMonitorBehind": (metrics.SHARD_PROGRESS_AGE, CLUSTER, "31x20", "2x20", 10, CLUSTER),
    "GroupMonitorLagOld": (lag_metrics.LAG_AGE, CLUSTER, "0+60x20", "9x20", 10, CLUSTER),
    "GroupTelemetryStalled": (metrics.BROKER_PROGRESS_AGE, BROKER, "0+60x20", "1x20", 10, BROKER),
    "GroupTelemetryUncovered": (metrics.BROKER_COVERED, BROKER, "0x30", "1x30", 20, BROKER),
    "GroupMonitorAlertsStuck": (metrics.OUTBOX_AGE, RECEIVER, "0+60x20", "0x20", 10, RECEIVER),
    "GroupMonitorAlertsLost": (metrics.OUTBOX_DEAD, RECEIVER, "2 2 3x20", "3x20", 10, RECEIVER),
    "GroupMonitorDetectionSlow": (f"{metrics.DETECTION_DELAY}_bucket", LATE, "0+2x30", "0x12 1x20", 20, CLUSTER),
    "GroupMonitorRefuted": (metrics.INCIDENTS_REFUTED, CLUSTER, "0 1x20", "3x20", 10, CLUSTER),
    "GroupMonitorRowsRejected": (metrics.ROWS_REJECTED, CLUSTER, "0 0 10000x20", "0+1x20", 10, CLUSTER),
    "ConsumerGroupIncidentPage": (
        metrics.GROUP_INCIDENTS_TOLD,
        {**GROUP, "rule": "session-expired", "severity": "page"},
        "1x20",
        "_x20",
        10,
        {**GROUP, "rule": "session-expired"},
    ),
    "ConsumerGroupIncidentWarning": (
        metrics.GROUP_INCIDENTS_TOLD,
        {**GROUP, "rule": "poll-exceeded", "severity": "warn"},
        "1x20",
        "_x20",
        10,
        {**GROUP, "rule": "poll-exceeded"},
    ),
}


def series(metric: str, labels: dict[str, str]) -> str:
    return metric + "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"


def judged(tmp_path, rule: str, values: str, expected: list[dict]) -> subprocess.CompletedProcess[str]:
    metric, labels, _, _, minute, _ = CASES[rule]
    inputs = [{"series": series(metric, labels), "values": values}]
    if metric.endswith("_bucket"):  # every observation took longer than the last bucket but one
        inputs.append({"series": series(metric, {**labels, "le": "30"}), "values": "0x30"})
        inputs.append({"series": series(metric.replace("_bucket", "_count"), CLUSTER), "values": values})
    asked = {"alert_rule_test": [{"eval_time": f"{minute}m", "alertname": rule, "exp_alerts": expected}]}
    return tried(tmp_path, inputs, asked)


def tried(tmp_path, inputs: list[dict], asked: dict) -> subprocess.CompletedProcess[str]:
    test = {
        "rule_files": [str(RULE_FILE)],
        "evaluation_interval": "15s",
        "tests": [{"interval": "1m", "input_series": inputs, **asked}],
    }
    path = tmp_path / "test.yml"
    path.write_text(json.dumps(test))
    return subprocess.run([PROMTOOL, "test", "rules", str(path)], capture_output=True, text=True, check=False)


def shown(text: str, labels: dict[str, str]) -> str:
    for name, value in labels.items():
        text = text.replace(f"{{{{ .Labels.{name} }}}}", value)
    return text


def test_promtool_finds_nothing_wrong():
    done = subprocess.run(
        [PROMTOOL, "check", "rules", "--lint=all", "--lint-fatal", str(RULE_FILE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_has_a_case():
    assert [rule.name for rule in RULES] == list(CASES)


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if "{{ .Labels.group }}" in rule.summary], ids=lambda r: r.name
)
def test_an_alert_about_a_group_repeats_an_incident_that_receivers_are_told(rule):
    """So a group with `mode = "record"` or `"off"` has none."""
    assert metrics.GROUP_INCIDENTS_TOLD in rule.expr


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_fires_with_the_labels_that_its_words_name(tmp_path, rule):
    _, _, firing, _, _, labels = CASES[rule.name]
    annotations = {name: shown(text, labels) for name, text in rule.annotations().items()}
    assert "{{" not in "".join(annotations.values())
    expected = [{"exp_labels": {"severity": rule.severity, **labels}, "exp_annotations": annotations}]
    done = judged(tmp_path, rule.name, firing, expected)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_is_quiet_while_all_is_well(tmp_path, rule):
    done = judged(tmp_path, rule, CASES[rule][3], [])
    assert done.returncode == 0, done.stdout + done.stderr


def value_of(tmp_path, expr: str, value: float, **values: str) -> subprocess.CompletedProcess[str]:
    """Ask for an expression over series, each scraped from two `serve`s."""
    inputs = [
        {"series": series(metric, {**GROUP, "instance": f"serve-{number}"}), "values": values[metric]}
        for metric in values
        for number in (1, 2)
    ]
    expr = f"sum({expr})".replace("$cluster", "prod").replace("$__range", "10m").replace("$__rate_interval", "10m")
    told = {"expr": expr, "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": value}]}
    return tried(tmp_path, inputs, {"promql_expr_test": [told]})


TWO_SERVES = {
    "a total": (queries.total(metrics.INCIDENTS_OPEN, "cluster"), 80, metrics.INCIDENTS_OPEN, "80x20"),
    "all": (queries.all_of(metrics.INCIDENTS_OPEN), 80, metrics.INCIDENTS_OPEN, "80x20"),
    "a rate": (queries.rate(metrics.INGESTED, "cluster"), 1, metrics.INGESTED, "0+60x20"),
    "a growth": (queries.increase(metrics.INGESTED, "cluster"), 600, metrics.INGESTED, "0+60x20"),
}


@pytest.mark.parametrize("case", TWO_SERVES)
def test_what_two_serves_show_counts_once(tmp_path, case):
    expr, value, metric, values = TWO_SERVES[case]
    done = value_of(tmp_path, expr, value, **{metric: values})
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_what_each_serve_says_of_itself_is_summed_over_serves():
    summed = re.compile(r"\bsum(?: by \([\w, ]*\))? ?\((?:(?:rate|increase)\()?(group_monitor_\w+)")
    found = {name for text in rendered().values() for name in summed.findall(text)}
    assert found == {metrics.LEADER, metrics.STORE_ERRORS}


@pytest.mark.parametrize(("generations", "begun"), [("500 500 500 1x20", 1), ("7 8 9 10 11 12x20", 5), ("7x20", 0)])
def test_a_group_that_is_made_anew_does_not_count_hundreds_of_rebalances(tmp_path, generations, begun):
    done = value_of(tmp_path, queries.new_generations("$__range"), begun, **{metrics.GROUP_GENERATION: generations})
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_asks_what_prometheus_asks():
    text = (files.RENDERED / "grafana-rules.yml").read_text(encoding="utf-8")
    for rule in prometheus_rules()["groups"][0]["rules"]:
        assert f"title: {rule['alert']}\n" in text
    assert "$" not in text, "Grafana would take it for a variable of its environment"


def test_grafana_reads_every_word_of_its_rules():
    """It ignores what it does not know. grafana/grafana, pkg/services/provisioning/alerting/rules_types.go."""
    (group,) = grafana_rules()["groups"]
    assert group.keys() == {"orgId", "name", "folder", "interval", "rules"}
    words = {"uid", "title", "condition", "data", "noDataState", "execErrState", "for", "annotations", "labels"}
    for rule in group["rules"]:
        assert rule.keys() == words
        assert len(rule["uid"]) <= 40
        assert {rule["noDataState"], rule["execErrState"]} <= {"OK", "NoData", "Alerting", "Error", "KeepLast"}
        assert rule["condition"] in [query["refId"] for query in rule["data"]]
        for query in rule["data"]:
            assert query.keys() == {"refId", "datasourceUid", "relativeTimeRange", "model"}


def test_severities_are_renamed_where_somebody_wants_other_words():
    named = {"page": "critical", "warn": "warning"}
    wanted = [named.get(rule.severity, rule.severity) for rule in RULES]
    assert [rule["labels"]["severity"] for rule in prometheus_rules(named)["groups"][0]["rules"]] == wanted
    assert [rule["labels"]["severity"] for rule in grafana_rules(named)["groups"][0]["rules"]] == wanted
    assert {"critical", "warning"} <= set(wanted)
