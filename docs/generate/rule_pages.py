"""The facts in `docs/rules/*.md`, made from the code: `python -m docs.generate.rule_pages` writes them anew.

What stands outside the marked part of a page is written by people and is left alone.
"""

import re
from pathlib import Path

from coordinator_model.rules.registry import RULES
from coordinator_model.rules.rule import Rule
from coordinator_model.thresholds import Thresholds

FOLDER = Path(__file__).parents[1] / "rules"
BEGIN = "<!-- facts, made from coordinator_model/rules by `make rules` -->"
END = "<!-- end of facts -->"
MARKED = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
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


def pages() -> dict[Path, str]:
    """Every page by its path, as it should be."""
    wanted = {INDEX: index()} | {FOLDER / f"{rule.id}.md": facts(rule) for rule in RULES}
    return {path: MARKED.sub(lambda _, text=text: text, path.read_text()) for path, text in wanted.items()}


if __name__ == "__main__":
    for page, content in pages().items():
        page.write_text(content)
