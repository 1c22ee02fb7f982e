"""docs/states.md is made from the table of transitions, and the table has every event and no second way in."""

import ast
from pathlib import Path

import pytest

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.transitions import STATE_CHANGES, StateEvent
from coordinator_model.states import Evidence, GroupState
from docs.generate.states_page import END, PAGE, page

CORE = Path(__file__).parents[2] / "coordinator_model"


def test_the_page_is_what_the_table_says():
    assert END in PAGE.read_text()
    assert page() == PAGE.read_text(), "run `make docs`"


def test_the_table_has_every_event_and_every_event_is_used():
    assert set(STATE_CHANGES) == set(StateEvent)
    code = "\n".join(path.read_text() for path in (CORE / "replica").glob("*.py") if path.stem != "transitions")
    assert [event.name for event in StateEvent if f"StateEvent.{event.name}" not in code] == []


def test_only_one_function_assigns_the_state():
    """Also the instant, but for a rebalance that nobody saw between two states that are the same."""
    written = [
        (path.name, ast.unparse(target))
        for path in (CORE / "replica").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign)
        for whole in node.targets
        for target in (whole.elts if isinstance(whole, ast.Tuple) else [whole])
        if isinstance(target, ast.Attribute) and target.attr in ("state", "state_since_ms", "state_evidence")
        if not ast.unparse(target).startswith("member.")
    ]
    in_enter = [("group.py", f"self.{name}") for name in ("state", "state_since_ms", "state_evidence")]
    assert sorted(written) == sorted(
        [*in_enter, ("group.py", "self.state_evidence"), ("classic.py", "replica.state_since_ms")]
    )


@pytest.mark.parametrize("event", StateEvent)
def test_every_event_leads_where_the_table_says_and_counts_what_it_does_not_have(event):
    for state in GroupState:
        replica = GroupReplica("g", state=state, state_since_ms=1)
        replica.enter(event, 2)
        assert replica.state is STATE_CHANGES[event].to
        assert replica.state_since_ms == (1 if state is replica.state else 2)
        assert replica.unexpected == (state not in STATE_CHANGES[event].sources)


def test_a_state_that_is_entered_again_betters_its_evidence_and_never_worsens_it():
    replica = GroupReplica("g", state=GroupState.COMPLETING_REBALANCE)
    replica.enter(StateEvent.HEARTBEAT_ACCEPTED, 5)
    assert replica.state_evidence is Evidence.INFERRED
    replica.enter(StateEvent.RECORD_WITH_MEMBERS, 6)
    replica.enter(StateEvent.HEARTBEAT_ACCEPTED, 7)
    assert (replica.state_evidence, replica.state_since_ms) == (Evidence.OBSERVED, 5)
