"""An incident is open as long as its trouble is found, however often it ends and begins, whoever reads it again.

The finding has the same id all the time, which is the hardest case: a broker's silence is dated by its last line, which
stays the same while leaders change.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordinator_model.incidents import Kind
from coordinator_model.rules.registry import LAG_RULES, LASTING_RULES, REGISTRY, UNEXPLAINED_RULES
from streaming.config.settings import Settings
from streaming.store import Store
from tests.support.outputs import START_MS, finding, lag_report, report, view

VIEW = view(coordinator="broker-1")
STEP_MS = 10_000
FOUND_AGAIN_MS = 120_000
DEPARTURES = LASTING_RULES | UNEXPLAINED_RULES
RULES = st.sampled_from([each.rule.id for each in REGISTRY if each.rule.id not in DEPARTURES])
SEEN = st.lists(st.booleans(), min_size=1, max_size=8)
NUMBERS = count()


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path_factory.mktemp('store')}/monitor.db")
    yield opened
    opened.close()


@dataclass
class Reader:
    """One checkpoint. It reports once every ten seconds whether it finds the trouble."""

    store: Store
    cluster: str
    rule: str
    name: str
    batch_id: int = -1

    def says(
        self,
        step: int,
        *,
        found: bool,
        caught_up: bool = True,
        late_ms: int = 0,
        severity: str = "warn",
        mode: str = "notify",
    ) -> list[Kind]:
        """Apply a report about a step of the story; return the steps of the incident."""
        at_ms, self.batch_id = START_MS + step * STEP_MS, self.batch_id + 1
        group = "" if any(each.broker for each in REGISTRY if each.rule.id == self.rule) else "orders"
        facts = {"severity": severity, "at_ms": START_MS, "detail": {"members": [], "total": 1}}
        told = [finding(group, cluster=self.cluster, rule=self.rule, **facts)] if found else []
        outputs = [report(group, *told, at_ms=at_ms, cluster=self.cluster)]
        if group:
            outputs = [report(group, *told, at_ms=at_ms, cluster=self.cluster, view=VIEW)]
        if self.rule in LAG_RULES:  # it is judged once the job has caught up
            pending = [] if caught_up else None
            judged = lag_report(group, *(told if caught_up else []), at_ms=at_ms, cluster=self.cluster, pending=pending)
            outputs = [report(group, at_ms=at_ms, cluster=self.cluster, view=VIEW), judged]
        result = self.store.apply_batch(
            checkpoint_id=f"{self.cluster}-{self.name}",
            batch_id=self.batch_id,
            outputs=outputs,
            settings=Settings.model_validate({"cluster": self.cluster, "groups": ({"pattern": ".*", "mode": mode},)}),
            caught_up=caught_up,
            now_ms=at_ms + late_ms,
        )
        return [step.kind for step in result.transitions if step.kind is not Kind.UPDATED]

    def is_open(self) -> bool:
        return self.store.read.incidents(state="open", cluster=self.cluster).total > 0


@settings(max_examples=60, deadline=None)
@given(rule=RULES, seen=SEEN)
def test_each_time_that_a_trouble_is_found_again_it_is_told(store, rule, seen):
    reader = Reader(store, f"c-{next(NUMBERS)}", rule, "first")
    for step, (before, found) in enumerate(zip([False, *seen], seen, strict=False)):
        change = {(False, True): [Kind.OPENED], (True, False): [Kind.CLOSED]}
        assert reader.says(step, found=found) == change.get((before, found), [])
        assert reader.is_open() is found


@settings(max_examples=60, deadline=None)
@given(rule=RULES, seen=SEEN, begin=st.integers(0, 7), blind_until=st.integers(0, 8), then=SEEN)
@example(rule="telemetry-stalled", seen=[True, False, True], begin=0, blind_until=0, then=[True])
@example(rule="rebalance-stuck", seen=[True], begin=0, blind_until=8, then=[False, True])
def test_a_fresh_checkpoint_ends_and_begins_only_what_is_new(store, rule, seen, begin, blind_until, then):
    """It reads the past again from some step on, and finds nothing there until it has read enough."""
    first = Reader(store, f"c-{next(NUMBERS)}", rule, "first")
    fresh = Reader(store, first.cluster, rule, "fresh")
    for step, found in enumerate(seen):
        first.says(step, found=found)
    for step in range(begin, len(seen)):
        assert fresh.says(step, found=seen[step] and step >= blind_until, caught_up=False) == []
    for step, found in enumerate(then, len(seen)):
        told = fresh.says(step, found=found)
        assert told == [] or not (seen[-1] and all(then))
        assert fresh.is_open() or not found
    fresh.says(len(seen) + len(then), found=then[-1], late_ms=FOUND_AGAIN_MS)
    assert fresh.is_open() is then[-1]
