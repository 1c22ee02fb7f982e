"""The tables and diagrams in `docs/states.md`, from the table of transitions: `python -m docs.generate.states_page`.

What stands outside the marked part of the page is written by people and is left alone.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from coordinator_model.replica.transitions import (
    ANY,
    CLASSIC,
    CLASSIC_STATES,
    EPOCH_STATES,
    EPOCHS,
    WRITTEN,
    StateChange,
    StateEvent,
)
from coordinator_model.states import GroupState

PAGE = Path(__file__).parents[1] / "states.md"
BEGIN = "<!-- transitions, made from coordinator_model/replica/transitions.py by `make docs` -->"
END = "<!-- end of transitions -->"
MARKED = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
SETS = {ANY: "any", CLASSIC_STATES: "any of the classic protocol", EPOCH_STATES: "any with epochs"}
"""Sets of states that have a name of their own."""
PARTS = {
    "Classic groups": CLASSIC,
    "What the log says is so, whatever was held before": WRITTEN,
    "Groups with epochs: KIP-848 consumer groups, share groups, streams groups": EPOCHS,
}


def page() -> str:
    """The whole page as it should be."""
    return MARKED.sub(lambda _: f"{BEGIN}\n{parts()}\n{END}", PAGE.read_text(encoding="utf-8"))


def parts() -> str:
    """Every part of the table, with a diagram where the state that was held before matters."""
    lines = []
    for title, rows in PARTS.items():
        lines += ["", f"### {title}", "", *_table(rows)]
        if not all(row.sources in SETS for row in rows.values()):
            lines += ["", "```mermaid", "stateDiagram-v2", *_arrows(rows), "```"]
    named = [f"{name}: {', '.join(sorted(states))}" for states, name in SETS.items() if states != ANY]
    return "\n".join([*lines, "", f"{'; '.join(named)}."[:1].upper() + f"{'; '.join(named)}."[1:], ""])


def _table(rows: Mapping[StateEvent, StateChange]) -> list[str]:
    """One line an event."""
    lines = [
        f"| {event.value} | {_names(row.sources)} | {row.to.value} | {row.evidence.value} |"
        for event, row in rows.items()
    ]
    return ["| what happened | in state | leads to | evidence |", "| --- | --- | --- | --- |", *lines]


def _names(states: frozenset[GroupState]) -> str:
    return SETS.get(states) or ", ".join(state.value for state in GroupState if state in states)


def _arrows(rows: Mapping[StateEvent, StateChange]) -> list[str]:
    """One arrow a pair of states, from one node for a set that has a name: else the lines cannot be told apart."""
    labels: dict[tuple[str, str], list[str]] = {}
    for event, row in rows.items():
        many = row.sources in SETS
        sources = ["Any"] if many else [state.value for state in GroupState if state in row.sources - {row.to}]
        for source in sources:
            labels.setdefault((source, row.to.value), []).append(event.name.lower().replace("_", " "))
    return [f"    {source} --> {to}: {', '.join(names)}" for (source, to), names in sorted(labels.items())]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
