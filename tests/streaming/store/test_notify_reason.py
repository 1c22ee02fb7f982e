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
    # messages about one incident (d: dismissed or delivered), attempts for the first -> ids that are not sent
    (["opened", "closed"], 0, [0, 1]),  # nobody knows of it, and it is over
    (["opened", "escalated", "closed"], 0, [0, 1, 2]),
    (["escalated", "closed"], 0, [0, 1]),  # the receiver does not want the severity that it opened with
    (["d opened", "escalated", "closed"], 0, [1, 2]),  # its opening was dismissed
    (["opened", "closed"], 1, [0]),  # the receiver may have the opening
    (["opened", "escalated", "closed"], 3, [0, 1]),
    (["d opened", "escalated", "closed"], 1, [1]),  # it was told of the opening
    (["opened", "escalated"], 0, [0]),  # still open: as bad as it is now
    (["opened", "escalated"], 2, [0]),
    (["escalated", "escalated"], 0, [0]),
]


@pytest.mark.parametrize(("transitions", "attempts", "dismissed"), OUTDATED)
def test_only_the_newest_of_old_messages_is_sent(transitions, attempts, dismissed):
    """None is sent about an incident that is over and of which nobody was told."""
    messages = [Told(number, text.removeprefix("d "), 0, text[:2] != "d ") for number, text in enumerate(transitions)]
    messages[0] = messages[0]._replace(attempts=attempts)
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
