"""The truth table of who is told what, and that the store keeps to it."""

import pytest

from coordinator_model.incidents import Kind
from streaming.config import Settings
from streaming.store import Store
from streaming.store.notify_reason import Reason, why_notify
from tests.streaming.outputs import CLUSTER, START_MS, ended, finding, report

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
def test_why_notify(kind, told, mode, reason):
    assert why_notify(kind, told=told, mode=mode) is reason


def test_a_closing_is_told_to_whom_the_opening_was_and_to_nobody_else(tmp_path):
    """Burrow (peers.md 2d): "close is sent even if no open passed the threshold"."""
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
