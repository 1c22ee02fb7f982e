"""The facts in `docs/rules/*.md` and the list of alerts, made from the code: `python -m docs.generate.rule_pages`.

What stands outside the marked part of a page is written by people and is left alone.
"""

import re
from pathlib import Path

from coordinator_model.rules.registry import RULES
from coordinator_model.rules.rule import Rule
from coordinator_model.thresholds import Thresholds
from dashboards.rules import RULES as ALERTS
from dashboards.rules import Rule as Alert

FOLDER = Path(__file__).parents[1] / "rules"
BEGIN = "<!-- facts, made from coordinator_model/rules by `make rules` -->"
END = "<!-- end of facts -->"
MARKED = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
ALERTS_BEGIN = "<!-- alerts, made from dashboards/rules.py by `make rules` -->"
ALERTS_MARKED = re.compile(re.escape(ALERTS_BEGIN) + ".*?" + re.escape(END), re.DOTALL)
LABEL = re.compile(r"\{\{ \.Labels\.(\w+) \}\}")
INDEX = FOLDER / "README.md"


def facts(rule: Rule) -> str:
    """The marked part of a rule's page."""
    thresholds = Thresholds()
    rows = [
        ("severity", " → ".join(rule.severities)),
        ("true when", rule.true_when),
        ("evidence", rule.evidence),
        ("clears", rule.clears),
        ("thresholds", ", ".join(f"`{name}` = {_number(getattr(thresholds, name))}" for name in rule.thresholds)),
    ]
    lines = [f"| {name} | {text or 'none'} |" for name, text in rows]
    return "\n".join([BEGIN, "| | |", "| --- | --- |", *lines, END])


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


def index() -> str:
    """The marked part of the list of all rules."""
    lines = [f"| [{r.id}]({r.id}.md) | {' → '.join(r.severities)} | {r.true_when} |" for r in RULES]
    return "\n".join([BEGIN, "| rule | severity | true when |", "| --- | --- | --- |", *lines, END])


def alerts() -> str:
    """The marked list of the alerts that are made from metrics."""
    lines = [f"| `{a.name}` | {a.severity} | {_meaning(a)} | {_page(a)} |" for a in ALERTS]
    head = ["| alert | severity | meaning | page |", "| --- | --- | --- | --- |"]
    return "\n".join([ALERTS_BEGIN, *head, *lines, END])


def _meaning(alert: Alert) -> str:
    return LABEL.sub(r"*\1*", f"{alert.summary}. {alert.description}")


def _page(alert: Alert) -> str:
    return "that of the rule" if LABEL.search(alert.runbook) else f"[{alert.runbook}]({alert.runbook}.md)"


def pages() -> dict[Path, str]:
    """Every page by its path, as it should be."""
    wanted = {INDEX: index()} | {FOLDER / f"{rule.id}.md": facts(rule) for rule in RULES}
    made = {path: MARKED.sub(lambda _, text=text: text, path.read_text()) for path, text in wanted.items()}
    return made | {INDEX: ALERTS_MARKED.sub(lambda _: alerts(), made[INDEX])}


if __name__ == "__main__":
    for page, content in pages().items():
        page.write_text(content)
