"""Who was told last that an incident is open is told that it closed, nobody else is, and nobody else is reminded.

Whatever comes together: an incident that opens again, a group that is only recorded for a while, a receiver that does
not answer, refuses or gets another address.
"""

import json
from collections.abc import Iterator
from itertools import count
from typing import Literal, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, update

from coordinator_model.incidents import Kind
from streaming.store import Store, tables
from tests.streaming.store.test_found_again import Reader

LONG_AFTER_MS = 2**62
NUMBERS = count()
BOTH, PAGES = ("warn", "page"), ("page",)


@pytest.fixture(scope="module")
def module_store(tmp_path_factory) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path_factory.mktemp('store')}/monitor.db")
    yield opened
    opened.close()


@pytest.fixture
def store(module_store) -> Store:
    return emptied(module_store)


def emptied(store: Store) -> Store:
    with store.engine.begin() as connection:
        for table in (tables.incidents, tables.outbox):
            connection.execute(delete(table))
    return store


def a_reader(store: Store) -> Reader:
    """Make a checkpoint of a new cluster, of a rule whose incidents may open again."""
    return Reader(store, f"c-{next(NUMBERS)}", "rebalance-stuck", "first")


class Step(NamedTuple):
    """What is found, and what then becomes of the messages about it; lost: taken, but the answer did not arrive."""

    found: Literal["warn", "page"] | None = None
    mode: Literal["notify", "record"] = "notify"
    answer: Literal["taken", "lost", "refused", "away"] = "taken"
    then: Literal["", "reloaded", "renamed"] = ""


class Receiver:
    """The other end: what somebody sees there."""

    def __init__(self, store: Store) -> None:
        self.store, self.name = store, f"hook {next(NUMBERS)}"
        self.holds_it_open = False
        self.is_in_doubt = False  # the last message was refused, or its answer was lost

    def gets_what_is_due(self, answer: str) -> None:
        outbox, tried = self.store.outbox, set()
        outbox.dismiss_outdated(self.name)
        while due := [each for each in outbox.due(self.name, LONG_AFTER_MS) if each.id not in tried]:
            for message in due:
                tried.add(message.id)
                outbox.attempt([message.id])
                is_end = message.transition == Kind.CLOSED
                assert self.holds_it_open or self.is_in_doubt or not is_end, "an end of nothing"
                if answer != "refused":
                    self.holds_it_open = not is_end
                self.is_in_doubt = answer != "taken"
                if answer == "taken":
                    outbox.done([message.id], 1)
                else:
                    outbox.failed([message.id], answer, None if answer == "refused" else 1)


STEPS = st.lists(
    st.builds(
        Step,
        found=st.sampled_from([None, "warn", "page"]),
        mode=st.sampled_from(["notify", "notify", "record"]),
        answer=st.sampled_from(["taken", "taken", "lost", "refused", "away"]),
        then=st.sampled_from(["", "", "reloaded", "renamed"]),
    ),
    min_size=1,
    max_size=8,
)
OVER, FOUND, AGAIN = Step(), Step("page"), Step("page", then="reloaded")


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, wanted=st.sampled_from([BOTH, PAGES]))
@example(steps=[FOUND, OVER, Step("page", answer="away"), OVER], wanted=BOTH)
@example(steps=[FOUND, Step(answer="away"), Step("page", answer="away"), OVER], wanted=BOTH)
@example(steps=[FOUND, OVER, Step("page", "record"), OVER], wanted=BOTH)
@example(steps=[Step("warn"), Step("page", "record"), OVER], wanted=BOTH)
@example(steps=[Step("page", answer="refused"), AGAIN, OVER], wanted=PAGES)
@example(steps=[Step("page", answer="away"), Step("page", then="renamed"), OVER], wanted=PAGES)
@example(steps=[Step("warn"), Step("page", answer="refused"), AGAIN], wanted=BOTH)
@example(steps=[FOUND, Step("page", then="renamed"), OVER], wanted=PAGES)
def test_who_was_told_that_it_is_open_is_told_that_it_closed(module_store, steps, wanted):
    store = emptied(module_store)
    reader, receiver = a_reader(store), Receiver(store)
    told = None
    for number, step in enumerate(steps):
        severity = step.found or "warn"
        for kind in reader.says(number, found=bool(step.found), severity=severity, mode=step.mode):
            told = step.found if kind is not Kind.CLOSED and step.mode == "notify" else None
        assert len(store.read.firing(wanted)) == (told in wanted), "a reminder of what was not told"
        if step.then == "renamed":
            receiver = Receiver(store)
        store.outbox.fan_out({receiver.name: wanted})
        if step.then:
            store.outbox.tell_open({receiver.name: wanted})
            store.outbox.give_up_removed_receivers([receiver.name])
        if step.answer == "away":
            continue
        receiver.gets_what_is_due(step.answer)
        if step.answer == "taken" and told in wanted:
            assert receiver.holds_it_open or (receiver.is_in_doubt and not step.then)
        if step.answer == "taken" and not reader.is_open():
            assert not receiver.holds_it_open or receiver.is_in_doubt


class TestTellOpen:
    """A receiver with a wrong key or address is given the right one: it has another name then, and got nothing."""

    @pytest.fixture
    def reader(self, store):
        return a_reader(store)

    @pytest.fixture
    def told(self, store):
        """Let receiver `a` be told as far as it answers; return what it then gets if all that are open are told."""

        def _told(answer, name="a", wanted=BOTH):
            receiver = Receiver(store)
            receiver.name = "a"
            store.outbox.fan_out({"a": BOTH})
            if answer != "away":
                receiver.gets_what_is_due(answer)
            before = {message.id for message in store.outbox.due(name, LONG_AFTER_MS)}
            made = store.outbox.tell_open({name: wanted})
            assert store.outbox.tell_open({name: wanted}) == 0, "one is pending"
            again = [each.transition for each in store.outbox.due(name, LONG_AFTER_MS) if each.id not in before]
            assert len(again) == made
            return again

        return _told

    @pytest.mark.parametrize(
        ("answer", "name", "wanted", "again"),
        [
            ("taken", "a", BOTH, []),
            ("lost", "a", BOTH, []),  # it is pending
            ("away", "a", BOTH, []),
            ("refused", "a", BOTH, ["opened"]),
            ("taken", "b", BOTH, ["opened"]),  # added, or the key was changed
            ("refused", "b", BOTH, ["opened"]),
            ("away", "b", BOTH, ["opened"]),
            ("taken", "b", PAGES, []),
        ],
    )
    def test_who_does_not_know_is_told_once(self, reader, told, answer, name, wanted, again):
        reader.says(0, found=True)
        assert told(answer, name, wanted) == again

    def test_a_message_says_how_it_is_now(self, reader, told, store):
        reader.says(0, found=True)
        reader.says(1, found=True, severity="page")
        assert told("refused") == ["escalated"]
        (message,) = store.outbox.due("a", LONG_AFTER_MS)
        said = json.loads(message.payload)
        assert (said["incident"]["severity"], said["incident"]["transition"]) == ("page", "escalated")
        assert said.keys() == {"incident", "opened_ms", "closed_ms", "late", "labels", "runbook_url"}

    def test_an_escalation_that_was_refused_is_told_though_the_opening_was_not(self, reader, told, store):
        reader.says(0, found=True)
        assert told("taken") == []
        reader.says(1, found=True, severity="page")
        assert told("refused") == ["escalated"]

    def test_nobody_is_told_of_what_is_over_or_only_recorded(self, reader, told):
        reader.says(0, found=True)
        reader.says(1, found=False)
        assert told("refused") == told("away", "b") == []
        reader.says(2, found=True, mode="record")
        assert told("away", "b") == []

    def test_what_waits_to_be_fanned_out_is_not_told_twice(self, reader, store):
        reader.says(0, found=True)
        assert store.outbox.tell_open({"a": BOTH}) == 0


def test_a_page_of_which_the_end_was_told_and_that_came_again_unseen_is_missed(store):
    """The attempts of its first life hid that: a second end was sent, and no summary."""
    reader, receiver = a_reader(store), Receiver(store)
    for step, (found, answer) in enumerate([(True, "taken"), (False, "taken"), (True, "away"), (False, "away")]):
        reader.says(step, found=found, severity="page")
        store.outbox.fan_out({receiver.name: BOTH})
        if answer == "taken":
            receiver.gets_what_is_due(answer)
    assert store.outbox.dismiss_outdated(receiver.name) == 2
    assert [missed.pages for missed in store.outbox.missed(60_000)] == [1]


@pytest.mark.parametrize(("found", "pages"), [([True, False, True], 0), ([True, False, True, False], 1)])
def test_an_incident_that_came_and_went_while_nobody_could_be_told_is_missed_once(store, found, pages):
    """And not at all if the receiver is told that it is open."""
    reader = a_reader(store)
    for step, is_found in enumerate(found):
        reader.says(step, found=is_found, severity="page")
    store.outbox.fan_out({"a": BOTH})
    assert store.outbox.dismiss_outdated("a") == len(found) - 1 + pages
    assert sum(missed.pages for missed in store.outbox.missed(60_000)) == pages


def test_what_was_missed_stays_missed_when_it_comes_again(store):
    reader = a_reader(store)
    for step, found in enumerate([True, False]):
        reader.says(step, found=found, severity="page")
    store.outbox.fan_out({"a": BOTH})
    store.outbox.dismiss_outdated("a")
    reader.says(2, found=True, severity="page")
    with store.engine.begin() as connection:
        connection.execute(update(tables.outbox).where(tables.outbox.c.receiver == "").values(created_ms=LONG_AFTER_MS))
    store.outbox.fan_out({"a": BOTH})
    assert [missed.pages for missed in store.outbox.missed(60_000)] == [1]
