"""docker-compose.yml as it stands, without an engine: built, started, a consumer killed, an alert everywhere."""

import json
import re
import tempfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.dashboards import engine
from tests.support import databases
from tests.support.parts import skip_without_broker
from tests.support.waiting import await_true

pytestmark = [pytest.mark.soak, pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1_800)]
WELL = 120


@pytest.fixture(scope="module")
def stack():
    """Every service but Grafana, well by its own health check; then the sample consumers."""
    if missing := engine.missing() or databases.missing():
        pytest.skip(missing)
    skip_without_broker()
    with tempfile.TemporaryDirectory(prefix="group-monitor-stack-") as folder, engine.engine(Path(folder)) as started:
        for name in ("serve", "run", "prometheus", "alertmanager"):
            started.up(name)
        for name in ("serve", "run", "prometheus", "alertmanager"):
            await_true(lambda name=name: started.healthy(name), timeout_s=engine.START_S)
        yield started


def groups(stack):
    """Group -> how alive its members are."""
    told = stack.ask("http://serve:8844/api/v1/groups")
    return {group["group"]: [member["liveness"] for member in group["members"]] for group in told}


def test_a_killed_sample_consumer_becomes_an_alert_everywhere(stack):
    orders, _ = (stack.up(name) for name in ("orders-consumer", "shipping-consumer"))
    everybody = {"orders": ["alive"] * 3, "shipping": ["alive"] * 2}
    await_true(lambda: everybody.items() <= groups(stack).items(), timeout_s=WELL)
    orders.pop().kill()

    def incident():
        told = stack.ask("http://serve:8844/api/v1/incidents?state=open")
        return next((one for one in told if (one["group"], one["rule"]) == ("orders", "session-expired")), None)

    await_true(incident, timeout_s=WELL)
    member = incident()["member_id"]
    assert member.startswith("orders-consumer")

    def alerted():
        alerts = stack.ask("http://alertmanager:9093/api/v2/alerts")
        mine = [alert for alert in alerts if alert["labels"]["alertname"] == "session-expired"]
        return any(member in json.dumps(alert) and alert["receivers"] == [{"name": "team"}] for alert in mine)

    await_true(alerted, timeout_s=WELL)
    asked = "http://prometheus:9090/api/v1/query?query=group_monitor_group_incidents_open"
    await_true(
        lambda: any(s["metric"]["group"] == "orders" for s in stack.ask(asked)["data"]["result"]), timeout_s=WELL
    )


def test_prometheus_has_the_rules_and_scrapes(stack):
    (group,) = stack.ask("http://prometheus:9090/api/v1/rules")["data"]["groups"]
    rules = YAML(typ="safe").load(engine.ROOT / "dashboards" / "rendered" / "prometheus-rules.yml")
    assert {rule["name"] for rule in group["rules"]} == {rule["alert"] for rule in rules["groups"][0]["rules"]}
    (target,) = stack.ask("http://prometheus:9090/api/v1/targets")["data"]["activeTargets"]
    assert (target["labels"]["instance"], target["health"]) == ("serve:8844", "up")


def test_no_password_is_in_any_log(stack):
    password = stack.run("cat", "/run/group-monitor-secrets/postgres").strip()
    assert re.fullmatch(r"\S{32}", password)
    assert not [name for name in engine.SERVICES if name != "grafana" and password in stack.log(name)]


def test_stopped_by_the_engine_it_ends_in_order(stack):
    for name in ("run", "serve"):
        (process,) = stack.running(name)
        process.terminate()
        assert process.wait(engine.stop_s(name)) == 0, stack.log(name)
