"""Every rule has its runbook, and what that says of thresholds and severities is what the code says."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from coordinator_model.rules.registry import REGISTRY, RULES
from coordinator_model.rules.rule import Rule
from coordinator_model.states import MEMBER_REMOVED, POLL_EXCEEDED, REBALANCE_TIMEOUT, SESSION_EXPIRED, Severity
from dashboards.rules import RULES as ALERT_RULES
from docs.generate.rule_pages import BEGIN, FOLDER, INDEX, pages
from streaming.store.batch import OWN_RULES

MODULES = sorted((Path(__file__).parents[2] / "coordinator_model" / "rules").glob("*.py"))
PAGES = pages()


def rules_by_name():
    """The rules that modules hold, by the names of their constants."""
    modules = [importlib.import_module(f"coordinator_model.rules.{path.stem}") for path in MODULES]
    held = [(name, value) for module in modules for name, value in vars(module).items()]
    return {name: value for name, value in held if isinstance(value, Rule)}


def test_the_registry_has_every_rule_that_a_module_holds():
    held = rules_by_name()
    assert {name: rule.id for name, rule in held.items()} == {
        rule.id.upper().replace("-", "_"): rule.id for rule in RULES
    }
    assert len(RULES) == len({rule.id for rule in RULES})


def test_every_rule_has_a_judge():
    for each in REGISTRY:
        assert any(judge is not None for judge in each[1:]), each.rule.id
        assert (each.lag is None) == (each.pending is None), each.rule.id


def test_a_rule_is_judged_by_a_shard_or_by_lag_and_not_by_both():
    """Their reports leave each other's incidents alone."""
    for each in REGISTRY:
        assert each.lag is None or not any(each[1:-2]), each.rule.id


def test_the_ids_that_the_replica_knows_are_in_the_registry():
    assert {SESSION_EXPIRED, REBALANCE_TIMEOUT, POLL_EXCEEDED, MEMBER_REMOVED} <= {rule.id for rule in RULES}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_severities_of_findings_are_those_of_their_rule(path):
    """A finding takes its severity from its `Rule`, so that it stands once."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    given = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "severity"]
    named = {node.id for value in given for node in ast.walk(value) if isinstance(node, ast.Name)}
    assert "Severity" not in named


def test_a_rule_is_superseded_only_by_a_rule_of_the_registry():
    assert {rule.superseded_by for rule in RULES if rule.superseded_by is not None} <= {rule.id for rule in RULES}


def test_every_violation_lasts_and_may_be_ended_by_a_heartbeat():
    """A member that broke a timeout stays accused until it is heard again."""
    assert all(rule.lasting and rule.needs_heartbeats for rule in RULES if rule.violation)


def test_severities_are_those_that_there_are_from_least_to_worst():
    for rule in RULES:
        ranks = [Severity(severity).rank for severity in rule.severities]
        assert ranks == sorted(ranks), rule.id


@pytest.mark.parametrize("rule", [rule for rule in RULES if len(rule.severities) > 1], ids=lambda rule: rule.id)
def test_it_is_said_what_makes_an_incident_worse(rule):
    """`docs/rules/README.md` says it of members that broke a timeout."""
    said = rule.violation
    assert said or re.search(r"\b(page|warning|info)\b", rule.true_when)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_facts_of_a_runbook_are_those_of_the_code(path):
    text = path.read_text()
    assert BEGIN in text
    assert text == PAGES[path], "run `make rules`"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_runbook_tells_what_it_means_how_we_know_and_what_to_do(rule):
    text = (FOLDER / f"{rule.id}.md").read_text()
    assert text.startswith(f"# {rule.id}\n")
    for heading in ("## What it means", "## How we know", "## What to do"):
        _, _, section = text.partition(heading + "\n")
        assert len(section.split("## ")[0].split()) >= 10, heading


def test_a_runbook_records_what_has_already_happened():
    """A capture without `--from-beginning` holds only what comes after the incident."""
    texts = [path.read_text() for path in FOLDER.glob("*.md")]
    captures = [told for text in texts for told in re.findall(r"`(group-monitor capture[^`]*)`", text)]
    assert set(captures) == {"group-monitor capture --config monitor.toml --from-beginning --out capture.jsonl.gz"}


@pytest.mark.parametrize("alert", ALERT_RULES, ids=lambda alert: alert.name)
def test_the_page_of_an_alert_made_from_metrics_names_it(alert):
    page = "README" if "{{" in alert.runbook else alert.runbook  # the page of its rule
    assert f"`{alert.name}`" in (FOLDER / f"{page}.md").read_text()


def test_there_are_no_pages_of_rules_that_are_gone():
    """`serve` has rules of its own, about the monitor itself, and so has Prometheus."""
    alerts = {rule.runbook for rule in ALERT_RULES if "{{" not in rule.runbook}
    own = {FOLDER / f"{rule}.md" for rule in (*OWN_RULES, *alerts)}
    assert set(FOLDER.glob("*.md")) == PAGES.keys() | {INDEX} | own
