"""The truth table of who is told what, and that the store keeps to it."""

import json

import pytest
from sqlalchemy import update

from coordinator_model.incidents import Kind
from streaming.config import Settings
from streaming.store import Store, tables
from streaming.store.database import database_ms
from streaming.store.notify_reason import Reason, Waiting, outdated, why_notify
from tests.support.outputs import CLUSTER, START_MS, ended, finding, report

TABLE = [
    # step, told before, mode now -> why or why not
    (Kind.OPENED, False, "notify", Reason.OPENED),
    (Kind.OPENED, False, "record", Reason.RECORD_ONLY),
    (Kind.OPENED, False, "off", Reason.RECORD_ONLY),
    (Kind.ESCALATED, True, "notify", Reason.ESCALATED),
    (Kind.ESCALATED, False, "notify", Reason.FIRST_TOLD),
    (Kind.ESCALATED, True, "record", Reason.RECORD_ONLY),
    (Kind.ESCALATED, False, "record", Reason.RECORD_ONLY),
    (Kind.UPDATED, True, "notify", Reason.NO_NEWS),
    (Kind.UPDATED, False, "notify", Reason.NO_NEWS),
    (Kind.CLOSED, True, "notify", Reason.CLOSED),
    (Kind.CLOSED, True, "record", Reason.CLOSED),
    (Kind.CLOSED, True, "off", Reason.CLOSED),
    (Kind.CLOSED, False, "notify", Reason.NEVER_TOLD),
    (Kind.CLOSED, False, "record", Reason.NEVER_TOLD),
]


@pytest.mark.parametrize(("kind", "told", "mode", "reason"), TABLE)
def test_the_reason_to_notify_of_a_transition(kind, told, mode, reason):
    assert why_notify(kind, told=told, mode=mode) is reason


OUTDATED = [
    (["opened", "closed"], 0, [0, 1]),  # nobody knows of it, and it is over
    (["opened", "escalated", "closed"], 0, [0, 1, 2]),
    (["opened", "closed"], 1, [0]),  # the receiver may have the opening
    (["opened", "escalated", "closed"], 3, [0, 1]),
    (["escalated", "closed"], 0, [0]),  # it was told of the opening
    (["opened", "escalated"], 0, [0]),  # still open: as bad as it is now
    (["opened", "escalated"], 2, [0]),
    (["escalated", "escalated"], 0, [0]),
]


@pytest.mark.parametrize(("transitions", "attempts", "dismissed"), OUTDATED)
def test_only_the_newest_of_old_messages_is_sent(transitions, attempts, dismissed):
    """None is sent about an incident that is over and of which nobody was told."""
    waiting = [Waiting(number, transition, 0) for number, transition in enumerate(transitions)]
    waiting[0] = waiting[0]._replace(attempts=attempts)
    assert outdated(waiting) == dismissed


def test_a_closing_is_told_to_whom_the_opening_was_and_to_nobody_else(tmp_path):
    """Burrow sends a closing even where no opening passed the threshold."""
    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    batches = iter(range(100))

    def apply(mode, *outputs):
        settings = Settings.model_validate({"cluster": CLUSTER, "groups": ({"pattern": ".*", "mode": mode},)})
        store.apply_batch(checkpoint_id="c", batch_id=next(batches), outputs=outputs, settings=settings)
        return sum(row.pending for row in store.outbox.totals())

    assert apply("record", report("orders", finding())) == 0
    assert apply("notify", report("orders", ended(finding(), START_MS + 1))) == 0
    assert apply("notify", report("paid", finding("paid"))) == 1
    assert apply("off", report("paid", finding("paid"))) == 2
    store.close()


def test_nothing_is_due_that_may_be_outdated_and_was_not_looked_at(tmp_path):
    """Messages that arrive between a delivery worker's two looks were sent though they came too late: 30 pages for
    nothing."""
    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    settings = Settings(cluster=CLUSTER)
    closing = report("orders", ended(finding(), START_MS + 1))
    for batch_id, output in enumerate((report("orders", finding()), closing, report("paid", finding("paid")))):
        store.apply_batch(checkpoint_id="c", batch_id=batch_id, outputs=[output], settings=settings)
    with store.engine.begin() as connection:
        connection.execute(update(tables.outbox).values(created_ms=database_ms() - 86_400_000))
    assert store.outbox.dismiss_outdated("hook") == 0
    store.outbox.fan_out({"hook": ("page", "warn", "info")})

    def due():
        return [
            (message.transition, json.loads(message.payload)["incident"]["group"])
            for message in store.outbox.due("hook", 2**62)
        ]

    assert due() == [("opened", "paid")]
    assert store.outbox.dismiss_outdated("hook") == 2
    assert due() == [("opened", "paid")]
    store.close()
