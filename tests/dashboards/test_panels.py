"""Every panel and every rule alive on real data: a real broker, `run`, `serve`, and Debian's Prometheus scraping it."""

from collections import defaultdict

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dashboards.rules import ENOUGH_INCIDENTS
from streaming.demo.setting import CLUSTER
from streaming.serve import metrics
from tests.dashboards import grafana, prometheus
from tests.dashboards.scenario import ALONE, GROUP, play
from tests.support.parts import skip_without_broker

pytestmark = [pytest.mark.e2e, pytest.mark.spark]
NEEDS = {"fleet: Stalled partitions, by topic": "nothing stalls in this scenario"}
"""Place -> what it waits for; a panel listed here that shows something fails the test."""


@pytest.fixture(scope="module", autouse=True)
def parts():
    pytest.importorskip("pyspark")
    pytest.importorskip("confluent_kafka")
    if missing := prometheus.missing():
        pytest.skip(missing)
    skip_without_broker()


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    with play(tmp_path_factory.mktemp("played")) as scenario:
        yield scenario


def test_every_panel_and_every_rule_has_data(played):
    """What stays empty is exactly what `NEEDS` says, so that the list can only shrink.

    A rule that needs many incidents is asked without that condition: there are few in this scenario.
    """
    found = defaultdict(list)
    for place, expr in grafana.queries(cluster=CLUSTER, group=GROUP):
        found[place].append(bool(played.ever(expr.replace(f">= {ENOUGH_INCIDENTS}", ">= 0"))))
    empty = {place for place, has_data in found.items() if not all(has_data)}
    assert sorted(empty) == sorted(NEEDS)


def test_every_variable_offers_a_choice(played):
    for place, series, label in grafana.variables():
        name = grafana.filled(series, {"cluster": CLUSTER})
        assert played.asking.get(f"label/{label}/values", **{"match[]": name}), place


def test_prometheus_evaluates_every_rule_without_an_error(played):
    (group,) = played.asking.get("rules")["groups"]
    assert {rule["name"]: (rule["health"], rule.get("lastError")) for rule in group["rules"]} == {
        rule.name: ("ok", None) for rule in grafana.RULES
    }


def test_prometheus_alerts_about_both_groups(played):
    alerts = played.ever('ALERTS{alertname=~"ConsumerGroupIncident.+"}')
    told = {(alert["metric"]["group"], alert["metric"]["rule"], alert["metric"]["severity"]) for alert in alerts}
    assert {(GROUP, "session-expired", "warn"), (ALONE, "session-expired", "page")} <= told


def test_alertmanager_does_not_tell_twice_what_serve_tells(played):
    assert played.routed["ConsumerGroupIncidentPage"] == {"nobody"}


def test_every_metric_exported_is_declared_with_its_meaning(played):
    families = {family.name for family in text_string_to_metric_families(played.exposition)}
    declared = {name.removesuffix("_total") for name in metrics.HELP}
    assert {name for name in families if not name.startswith("process_")} == declared
