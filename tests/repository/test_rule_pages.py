"""Every rule has its runbook, and what that says of thresholds and severities is what the code says."""

import ast
import re
from pathlib import Path

import pytest

from coordinator_model.rules.catalogue import RULES
from coordinator_model.states import Severity
from dashboards.rules import RULES as ALERT_RULES
from docs.generate.rule_pages import BEGIN, FOLDER, INDEX, pages
from streaming.store.batch import OWN_RULES

CORE = Path(__file__).parents[2] / "coordinator_model"
RULE_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
PAGES = pages()


def rule_ids():
    """The constants that name rules: `SESSION_EXPIRED = "session-expired"` and its like."""
    found = set()
    for path in [*(CORE / "rules").glob("*.py"), CORE / "states.py"]:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                value = node.value.value
                if isinstance(value, str) and RULE_ID.fullmatch(value):
                    [target] = node.targets
                    assert target.id == value.upper().replace("-", "_")
                    found.add(value)
    return found


def test_the_catalogue_names_every_rule_that_the_code_has():
    assert {rule.id for rule in RULES} == rule_ids()
    assert len(RULES) == len({rule.id for rule in RULES})


def test_a_rule_is_superseded_only_by_a_rule_of_the_catalogue():
    assert {rule.superseded_by for rule in RULES if rule.superseded_by is not None} <= {rule.id for rule in RULES}


def test_every_violation_lasts_and_may_be_ended_by_a_heartbeat():
    """A member that broke a timeout stays accused until it is heard again."""
    assert all(rule.lasting and rule.needs_heartbeats for rule in RULES if rule.violation)


def test_severities_are_those_that_there_are_from_least_to_worst():
    for rule in RULES:
        ranks = [Severity(severity).rank for severity in rule.severities]
        assert ranks == sorted(ranks), rule.id


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


def test_there_are_no_pages_of_rules_that_are_gone():
    """`serve` has rules of its own, about the monitor itself, and so has Prometheus."""
    alerts = {rule.runbook for rule in ALERT_RULES if "{{" not in rule.runbook}
    own = {FOLDER / f"{rule}.md" for rule in (*OWN_RULES, *alerts)}
    assert set(FOLDER.glob("*.md")) == PAGES.keys() | {INDEX} | own
