"""The truth table of who is told what, and that the store keeps to it."""

import json

import pytest
from sqlalchemy import create_engine, delete, event, insert, select, update

from coordinator_model.incidents import Kind
from streaming.config.settings import Settings
from streaming.store import Store, tables
from streaming.store.database import database_ms
from streaming.store.notify_reason import Reason, Told, outdated, why_notify
from tests.support import databases
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
    # messages about one incident, all pending unless said: "delivered", "dismissed", "dead", tried once or not ("+")
    # -> the places of those that are not sent
    ("opened closed", [0, 1]),  # nobody knows of it, and it is over
    ("opened escalated closed", [0, 1, 2]),
    ("escalated closed", [0, 1]),  # the receiver does not want the severity that it opened with
    ("opened:dismissed escalated closed", [1, 2]),
    ("opened+ closed", [0]),  # the receiver may have the opening
    ("opened+ escalated closed", [0, 1]),
    ("opened+:delivered escalated closed", [1]),
    ("opened+:dead escalated closed", [1]),
    ("opened escalated", [0]),  # still open: as bad as it is now
    ("opened+ escalated", [0]),
    ("escalated escalated", [0]),
    # it opened again
    ("opened+:delivered closed+:delivered opened closed", [2, 3]),  # the receiver holds it closed
    ("opened+:delivered closed+:delivered opened+ closed", [2]),
    ("opened+:delivered closed opened closed", [1, 2]),  # the receiver holds it open
    ("opened+:delivered closed:dismissed opened closed", [2]),
    ("opened+:delivered closed+ opened closed", [1, 2]),  # the first closing may be lost
    ("opened+:delivered closed+:dead opened closed", [2]),
    ("opened+:delivered closed+:delivered opened escalated", [2]),
    ("opened closed opened", [0, 1]),
    ("opened closed opened closed", [0, 1, 2, 3]),
]


@pytest.mark.parametrize(("chain", "dismissed"), OUTDATED)
def test_only_the_newest_of_old_messages_is_sent(chain, dismissed):
    """None is sent about an incident that is over to a receiver that does not hold it open."""
    messages = []
    for place, said in enumerate(chain.split()):
        step, _, fate = said.partition(":")
        told = Told(place, step.rstrip("+"), step.count("+"), pending=not fate, delivered=fate == "delivered")
        messages.append(told)
    assert outdated(messages) == dismissed


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


def test_what_is_only_recorded_is_not_repeated_whatever_was_told_before(tmp_path):
    """An Alertmanager got it every minute: as it opened again, or as it got worse, in a group set to `record`."""
    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    batches = iter(range(100))

    def apply(mode, *found):
        settings = Settings.model_validate({"cluster": CLUSTER, "groups": ({"pattern": ".*", "mode": mode},)})
        outputs = [report("orders", *found, at_ms=START_MS + (batch_id := next(batches)))]
        store.apply_batch(checkpoint_id="c", batch_id=batch_id, outputs=outputs, settings=settings)
        store.outbox.fan_out({"hook": ("warn", "page")})
        return len(store.read.firing(("warn", "page"))), store.read.incidents(told=True).total, due()

    def due():
        messages = store.outbox.due("hook", 2**62)
        store.outbox.done([message.id for message in messages], 1)
        return [message.transition for message in messages]

    stuck, worse = (finding(rule="rebalance-stuck", severity=severity) for severity in ("warn", "page"))
    assert apply("notify", stuck) == (1, 1, ["opened"])
    assert apply("record", worse) == (0, 0, [])
    assert apply("record") == (0, 0, ["closed"])  # who was told that it is open
    assert apply("record", stuck) == (0, 0, [])
    assert apply("record") == (0, 0, [])
    assert apply("notify", stuck) == (1, 1, ["opened"])
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


def test_who_wants_only_pages_hears_nothing_of_a_page_that_is_over_but_it_is_counted(tmp_path):
    """Most pages open as a warning. The end of one was sent without its beginning, and `alerts-missed` left it out."""
    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    settings, found = Settings(cluster=CLUSTER), finding()
    page = finding(severity="page")
    for batch_id, step in enumerate((found, page, ended(page, START_MS + 9_000))):
        store.apply_batch(checkpoint_id="c", batch_id=batch_id, outputs=[report("orders", step)], settings=settings)
    store.outbox.fan_out({"pager": ("page",)})
    with store.engine.begin() as connection:
        connection.execute(update(tables.outbox).values(created_ms=database_ms() - 86_400_000))
    assert store.outbox.dismiss_outdated("pager") == 2
    assert [(missed.receiver, missed.pages) for missed in store.outbox.missed(60_000)] == [("pager", 1)]
    store.close()


def test_a_message_committed_while_others_are_fanned_out_is_not_lost(postgres_url):
    """PostgreSQL gives ids before the commit, so a lower id can become visible after a higher one."""
    databases.empty(create_engine(postgres_url))
    store, other = Store.open(postgres_url), create_engine(postgres_url)
    outputs = [report(group, finding(group)) for group in ("late", "early")]
    store.apply_batch(checkpoint_id="c", batch_id=0, outputs=outputs, settings=Settings(cluster=CLUSTER))
    with other.begin() as connection:
        late = dict(connection.execute(select(tables.outbox).order_by(tables.outbox.c.id).limit(1)).mappings().one())
        connection.execute(delete(tables.outbox).where(tables.outbox.c.id == late["id"]))

    @event.listens_for(store.engine, "before_cursor_execute")
    def _commit(_connection, _cursor, statement, *_):
        if statement.startswith("DELETE") and late:
            with other.begin() as connection:
                connection.execute(insert(tables.outbox).values(late))
            late.clear()

    assert store.outbox.fan_out({"hook": ("warn",)}) == 1
    assert not late
    assert store.outbox.fan_out({"hook": ("warn",)}) == 1
    assert [message.transition for message in store.outbox.due("hook", 2**62)] == ["opened", "opened"]
    other.dispose()
    store.close()
