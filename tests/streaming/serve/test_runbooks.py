"""Where an alert's runbook link leads: the page of its rule, which `serve` has."""

import re

import pytest
from ruamel.yaml import YAML

from coordinator_model.rules.registry import RULES
from dashboards import files
from streaming.store.batch import OWN_RULES
from tests.streaming.serve.notify.test_message import told  # noqa: F401
from tests.support.outputs import finding, member, report, view

USUAL = "http://127.0.0.1:8844"
ALL_RULES = sorted({rule.id for rule in RULES} | set(OWN_RULES))


def alert_rules(name):
    """Rule -> where its runbook is, of a rendered file."""
    (group,) = YAML(typ="safe").load(files.RENDERED / name)["groups"]
    return {rule.get("alert") or rule["title"]: rule["annotations"].get("runbook_url") for rule in group["rules"]}


def links(text):
    return set(re.findall(r'href="([^"]*)"', text))


def test_every_rule_has_its_page(client):
    for rule in ALL_RULES:
        text = client.get(f"/rules/{rule}").text
        assert f"<h1>{rule}</h1>" in text
        assert "facts, made from" not in re.sub("<!--.*?-->", "", text)


def test_the_list_of_rules_leads_to_every_page_and_no_link_of_any_is_dead(client):
    leads_to, seen = {"/rules"}, set()
    while leads_to - seen:
        link = min(leads_to - seen)
        assert link.startswith("/"), link
        seen.add(link)
        leads_to |= links(client.get(link).text)
    assert {f"/rules/{rule}" for rule in ALL_RULES} <= seen


@pytest.mark.parametrize("path", ["none", "README", "..%2fREADME", "%3Cscript%3E", "session-expired.md", "a%00"])
def test_what_is_no_rule_is_a_404_for_people(client, path):
    text = client.get(f"/rules/{path}", 404).text
    assert "no such rule" in text
    assert "<script>%" not in text


def test_an_alert_links_to_the_page_that_serve_has(told, client, settings):  # noqa: F811
    serve = settings.serve.model_copy(update={"public_url": client.base})
    said = told(report("payments", finding("payments"), view=view("payments")), serve=serve)
    assert said["runbook_url"] == f"{client.base}/rules/session-expired"
    client.get(said["runbook_url"].removeprefix(client.base))


def test_without_an_address_for_people_there_is_no_link_that_leads_nowhere(told, settings):  # noqa: F811
    said = told(report("payments", finding("payments"), view=view("payments")), serve=settings.serve)
    assert said["runbook_url"] is None
    assert "runbook" not in said["description"]


@pytest.mark.parametrize("name", ["prometheus-rules.yml", "grafana-rules.yml"])
def test_every_alert_rule_links_to_a_page_that_serve_has(client, name):
    found = alert_rules(name)
    assert len(found) >= 13
    for url in found.values():
        assert url.startswith(f"{USUAL}/rules/")
        client.get(url.removeprefix(USUAL).replace("{{ .Labels.rule }}", "session-expired"))


def test_a_group_s_page_links_to_its_incidents_rules_and_shows_why_members_rejoin(apply, client):
    rejoining = member("m-1", rejoin_reason="cached metadata has changed <b>")
    apply(report("orders", finding(), view=view() | {"members": [rejoining]}))
    text = client.get("/groups/orders").text
    assert 'href="/rules/session-expired"' in text
    assert "rejoin_reason <bdi>cached metadata has changed &lt;b&gt;</bdi>" in text
