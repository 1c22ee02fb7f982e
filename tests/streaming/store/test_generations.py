"""A group's history: what each settled generation changed, whoever was restarted in between."""

from collections import defaultdict
from dataclasses import replace
from itertools import count

import pytest

from coordinator_model.membership import compare, membership
from streaming.config.settings import Settings
from streaming.store import Store
from tests.support.outputs import CLUSTER, START_MS, member, report, view

SETTINGS = Settings(cluster=CLUSTER)


def group(generation, *members, state="Stable", **changes):
    made = view(generation=generation, state=state, stable_since_ms=START_MS + generation, **changes)
    return report("orders", view=made | {"members": list(members)})


def reads(name, *partitions, **changes):
    return member(name, assignment=[{"topic": "orders", "partitions": list(partitions)}], **changes)


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/monitor.db"


@pytest.fixture
def apply(url):
    stores: list[Store] = []

    def _apply(*outputs, restart=False, caught_up=True):
        if restart or not stores:
            stores.append(Store.open(url))
        stores[-1].apply_batch(
            checkpoint_id=f"c-{len(stores)}",
            batch_id=next(numbers[len(stores)]),
            outputs=outputs,
            settings=SETTINGS,
            caught_up=caught_up,
        )
        return stores[-1].read.generations(CLUSTER, "orders")

    numbers = defaultdict(count)  # of each checkpoint
    yield _apply
    for store in stores:
        store.close()


def test_a_generation_tells_who_joined_who_left_and_what_moved(apply):
    apply(group(3, reads("a", 0, 1), reads("b", 2, 3, client_host="10.0.0.8")))
    newest, first = apply(group(4, reads("a", 0, 1, 2), reads("c", 3, client_host="10.0.0.9")))
    assert (first["generation"], first["cause"]) == (3, "first-seen")
    assert (newest["joined"], newest["left"], newest["returned"]) == (["c"], ["b"], [])
    assert (newest["partitions_moved"], newest["cause"], newest["members_total"]) == (2, "joined-and-left", 2)


def test_a_restarted_client_is_one_that_returned(apply):
    apply(group(3, reads("a", 0), reads("b", 1)))
    newest, _ = apply(group(4, reads("a", 0), reads("b2", 1)))
    assert (newest["returned"], newest["cause"]) == (["b2"], "returned")


def test_a_static_member_returns_by_its_instance_id_whatever_its_host():
    before = membership({"members": [reads("a-1", 0, instance_id="a", client_host="old")]})
    after = membership({"members": [reads("a-2", 0, instance_id="a", client_host="new")]})
    assert compare(before, after)["returned"] == ["a-2"]


def test_what_is_in_between_is_no_generation(apply):
    apply(group(3, reads("a", 0)))
    rows = apply(group(4, reads("a", 0), state="PreparingRebalance"), group(4, reads("a", 0), state="Empty"))
    assert [row["generation"] for row in rows] == [4, 3]
    assert len(apply(group(4, reads("a", 0)))) == 2


def test_a_restart_and_a_fresh_checkpoint_compare_with_what_was(apply):
    apply(group(3, reads("a", 0), reads("b", 1)))
    assert len(apply(group(3, reads("a", 0), reads("b", 1)), restart=True)) == 1
    newest, _ = apply(group(5, reads("a", 0, 1)), restart=True)
    assert (newest["left"], newest["partitions_moved"]) == (["b"], 1)


def test_a_group_that_was_deleted_begins_anew(apply):
    apply(group(3, reads("a", 0)))
    apply(report("orders", deleted=True))
    assert apply(group(1, reads("z", 0)))[1]["cause"] == "first-seen"


def test_a_big_membership_is_bounded_in_the_history_and_counted_in_full(apply):
    apply(group(3))
    newest, _ = apply(group(4, *(reads(f"m{number}", number) for number in range(1_000))))
    assert (len(newest["joined"]), newest["joined_total"]) == (100, 1_000)


def test_a_first_reading_writes_no_history(apply):
    """The first change after it is told in full."""
    assert apply(group(3, reads("a", 0), reads("b", 1)), caught_up=False) == []
    assert apply(group(4, reads("a", 0), state="PreparingRebalance")) == []
    (row,) = apply(group(4, reads("a", 0, 1)))
    assert (row["left"], row["partitions_moved"], row["cause"]) == (["b"], 1, "left")


def test_a_group_of_a_first_reading_that_changes_at_once_is_told_in_full_too(apply):
    apply(group(3, reads("a", 0), reads("b", 1)), caught_up=False)
    (row,) = apply(group(4, reads("a", 0, 1)))
    assert (row["left"], row["cause"]) == (["b"], "left")


def test_what_happens_while_a_restart_catches_up_is_history(apply):
    apply(group(3, reads("a", 0), reads("b", 1)))
    newest, _ = apply(group(4, reads("a", 0, 1)), restart=True, caught_up=False)
    assert newest["left"] == ["b"]


def test_a_generation_tells_how_long_its_rebalance_took(apply):
    apply(group(3, reads("a", 0)))
    began = {"began_ms": START_MS - 40_000, "joined_ms": START_MS - 1_000}
    newest, first = apply(group(4, reads("a", 0), rebalanced=began))
    assert (newest["began_ms"], newest["took_ms"], newest["joining_ms"]) == (START_MS - 40_000, 40_004, 39_000)
    assert (first["began_ms"], first["took_ms"], first["joining_ms"]) == (None, None, None)


@pytest.mark.parametrize(("into_ms", "named"), [(9_000, ["b"]), (1_000, [])])
def test_it_names_whom_the_rebalance_was_last_seen_to_wait_for_if_that_could_be_told(apply, into_ms, named):
    """Sooner than a heartbeat interval nobody has been seen to stop its heartbeats: all would be named."""
    apply(group(3, reads("a", 0), reads("b", 1)))
    phase = {"phase": "join", "since_ms": START_MS, "waiting_for": ["b"], "waiting_for_total": 1}
    waits = group(3, reads("a", 0), state="PreparingRebalance", rebalance=phase)
    apply(replace(waits, at_ms=START_MS + into_ms), restart=True)
    newest, _ = apply(group(4, reads("a", 0, 1)), restart=True)
    assert (newest["waited_for"], newest["waited_for_total"]) == (named, len(named))
    assert apply(group(5, reads("a", 0)))[0]["waited_for"] == []
