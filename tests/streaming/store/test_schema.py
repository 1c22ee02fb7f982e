"""The schema: migrations and tables say the same, history stays quick, what is old goes without holding up `run`."""

import os
import socket
import sqlite3
import threading
from contextlib import contextmanager

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, event, func, insert, inspect, select
from sqlalchemy.exc import OperationalError

from streaming.config.settings import Settings, StoreSettings
from streaming.doctor.check import Status
from streaming.doctor.machine import check_store
from streaming.store import Store, StoreError, tables
from streaming.store import store as store_module
from streaming.store.database import TIME_LIMITS, look
from streaming.store.migrations import head, upgrade
from tests.support.outputs import CLUSTER, START_MS, finding, report, view


def test_what_the_migrations_make_is_what_the_tables_say(url):
    store = Store.open(url)
    with store.engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert context.get_current_revision() == head()
        assert compare_metadata(context, tables.metadata) == []
    store.close()


def test_a_postgresql_that_vanishes_from_the_network_is_an_error_in_seconds(postgres_url):
    """`serve` and `run` waited 15 minutes in a read, or two hours."""
    store = Store.open(postgres_url + "?keepalives_idle=7")
    with store.engine.connect() as connection:
        number = os.dup(connection.connection.driver_connection.pgconn.socket)
    with socket.socket(fileno=number) as connected:
        options = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [connected.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [20_000, 7, 5, 3]
    store.close()


@pytest.mark.parametrize("opened", [Store.open, look])
def test_a_postgresql_that_accepts_and_never_answers_is_an_error(opened, monkeypatch):
    monkeypatch.setitem(TIME_LIMITS, "connect_timeout", 2)  # libpq's least
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(StoreError, match="timeout"):
        opened(f"postgresql+psycopg://monitor@127.0.0.1:{silent.getsockname()[1]}/postgres")


def test_a_database_of_the_first_schema_keeps_what_is_in_it(url):
    engine = create_engine(url)
    with engine.begin() as connection:
        upgrade(connection, "0001")
        row = {"cluster": CLUSTER, "checkpoint_id": "c", "batch_id": 3, "alive_ms": START_MS, "caught_up": True}
        connection.execute(insert(tables.runs), row)
    engine.dispose()
    store = Store.open(url)
    assert [run.batch_id for run in store.read.runs()] == [3]
    assert store.read.groups_worst_off(5, "worst_poll_headroom").objects == []
    store.close()


def views_in_the_groups(connection):
    """As schema 0004 had them."""
    connection.exec_driver_sql("ALTER TABLE groups ADD COLUMN view TEXT NOT NULL DEFAULT ''")
    of_the_group = "SELECT view FROM views WHERE views.group_key = groups.group_key"
    connection.exec_driver_sql(f"UPDATE groups SET view = ({of_the_group})")  # noqa: S608 - our own words
    connection.exec_driver_sql("DROP TABLE views")


def without_later_tables(connection):
    """As it was before schema 0006."""
    connection.exec_driver_sql("DROP TABLE run_leases")
    connection.exec_driver_sql("DROP INDEX ix_outbox_dismissed_ms")
    connection.exec_driver_sql("DROP INDEX ix_outbox_incident_id")
    connection.exec_driver_sql("ALTER TABLE outbox DROP COLUMN dismissed_ms")
    connection.exec_driver_sql("DROP TABLE blind_windows")
    connection.exec_driver_sql("DROP TABLE lags")
    connection.exec_driver_sql("ALTER TABLE runs DROP COLUMN starts")


def test_groups_of_an_older_schema_are_shown_as_they_were(url):
    store = Store.open(url)
    outputs = [report("orders", view=view()), report("paid", view=view("paid"))]
    store.apply_batch(checkpoint_id="c", batch_id=0, outputs=outputs, settings=Settings(cluster=CLUSTER))
    shown = store.read.groups().objects
    with store.engine.begin() as connection:
        views_in_the_groups(connection)
        without_later_tables(connection)
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0004'")
    store.close()
    again = Store.open(url)
    assert again.read.groups().objects == shown
    assert len(shown) == 2
    again.close()


def test_a_group_that_is_gone_takes_its_view_along(url):
    store = Store.open(url)
    for number, outputs in enumerate(([report("orders", view=view())], [report("orders", deleted=True)])):
        store.apply_batch(checkpoint_id="c", batch_id=number, outputs=outputs, settings=Settings(cluster=CLUSTER))
    with store.engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(tables.views)).scalar() == 0
    store.close()


def test_opening_again_changes_nothing(url):
    Store.open(url).close()
    store = Store.open(url)
    store.apply_batch(
        checkpoint_id="c",
        batch_id=0,
        outputs=[report("orders", finding(), view=view())],
        settings=Settings(cluster=CLUSTER),
    )
    store.close()
    again = Store.open(url)
    assert again.read.incidents().total == 1
    again.close()


def fingerprint(url, folder):
    """Every file of a SQLite database (of its shared memory the name: a reader's lock stands there), or every table."""
    if url.startswith("sqlite"):
        return {path.name: path.suffix == ".db-shm" or path.read_bytes() for path in folder.iterdir()}
    engine = create_engine(url)
    with engine.connect() as connection:
        names = inspect(connection).get_table_names()
        rows = {name: connection.exec_driver_sql(f'SELECT * FROM "{name}"').all() for name in names}  # noqa: S608
    engine.dispose()
    return rows


@pytest.mark.parametrize("revision", ["0004", "head", None])
@pytest.mark.parametrize("crashed", [True, False])
def test_doctor_says_which_schema_there_is_and_changes_nothing(url, tmp_path, revision, crashed):
    engine = create_engine(url)
    with engine.begin() as connection:
        if url.startswith("sqlite"):
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        if revision is not None:
            upgrade(connection, revision)
    if url.startswith("sqlite"):
        (tmp_path / "monitor.db").chmod(0o600)
    left_open = engine.connect() if crashed else None  # its log stays beside the file
    if not crashed:
        engine.dispose()
    before = fingerprint(url, tmp_path)
    check = check_store(StoreSettings(url=url))
    assert fingerprint(url, tmp_path) == before
    assert check.status is (Status.WARN if revision == "0004" else Status.OK)
    assert f"schema {revision.replace('head', head()) if revision else head()}" in check.found.replace(" makes", "")
    if left_open is not None:
        left_open.close()
        engine.dispose()


def planned(store, question):
    """How SQLite's planner would answer a question."""
    asked, plans = [], []
    event.listen(store.engine, "before_cursor_execute", lambda *a: asked.append((a[2], a[3])))
    question(store.read)
    with store.engine.connect() as connection:
        for statement, parameters in asked[:]:
            if statement.startswith("SELECT"):
                rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
                plans += [row.detail for row in rows]
    return plans


QUESTIONS = {
    "generations": lambda read: read.generations(CLUSTER, "orders"),
    "what happened": lambda read: read.history(CLUSTER, "orders", START_MS, 5),
    "incidents of a group": lambda read: read.incidents(cluster=CLUSTER, group="orders", limit=200),
    "what is open": lambda read: read.incidents(state="open"),
    "the newest incidents": lambda read: read.incidents(limit=100),
    "what is firing": lambda read: read.firing(("warn", "page")),
    "a group": lambda read: read.group(CLUSTER, "orders"),
    "what moved": lambda read: read.newest_moves(200),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_no_question_about_history_looks_at_every_row(tmp_path, question):
    """As SQLite's planner says it: no scan without an index over a table that grows."""
    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    store.apply_batch(
        checkpoint_id="c",
        batch_id=0,
        outputs=[report("orders", finding(), view=view())],
        settings=Settings(cluster=CLUSTER),
    )
    plans = planned(store, question)
    store.close()
    assert plans
    grows = ("generations", "transitions", "incidents")
    assert [p for p in plans if p.startswith(tuple(f"SCAN {name}" for name in grows)) and "INDEX" not in p] == []


def test_the_history_of_a_group_is_found_by_its_key(tmp_path):
    """A group with 10,000 incidents took more than a second: all of its transitions were put in order."""
    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    plans = planned(store, lambda read: read.history(CLUSTER, "orders", START_MS, 5))
    store.close()
    assert any("transitions_of_group" in plan for plan in plans)
    assert [plan for plan in plans if "TEMP B-TREE FOR ORDER BY" in plan] == []


def test_the_newest_incidents_of_a_group_are_read_in_their_order(tmp_path):
    """A group with 10,000 incidents had all of them put in order for the newest 200."""
    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    plans = planned(store, lambda read: read.incidents(cluster=CLUSTER, group="orders", limit=200))
    store.close()
    assert any("incidents_of_group" in plan for plan in plans)
    assert [plan for plan in plans if "TEMP B-TREE FOR ORDER BY" in plan] == []


def test_transitions_of_an_older_schema_get_their_groups(url):
    store = Store.open(url)
    outputs = [report("orders", finding(), view=view()), report("paid", finding("paid"))]
    store.apply_batch(checkpoint_id="c", batch_id=0, outputs=outputs, settings=Settings(cluster=CLUSTER))
    with store.engine.begin() as connection:
        schema = Operations(MigrationContext.configure(connection))
        schema.create_index("ix_incidents_group_key", "incidents", ["group_key"])
        for index, table in (
            ("incidents_of_group", "incidents"),
            *((f"incidents_by_{column}", "incidents") for column in ("cluster", "rule", "severity")),
            ("transitions_of_group", "transitions"),
        ):
            schema.drop_index(index, table)
        connection.exec_driver_sql("ALTER TABLE transitions DROP COLUMN group_key")
        views_in_the_groups(connection)
        without_later_tables(connection)
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0002'")
    store.close()
    again = Store.open(url)
    _, told = again.read.history(CLUSTER, "orders", 2**52, 5)
    again.close()
    assert [step["group"] for step in told] == ["orders"]


FILTERS = {
    "of a group": {"cluster": CLUSTER, "group": "orders"},
    "of a cluster": {"cluster": CLUSTER},
    "of a rule": {"rule": "session-expired"},
    "of a severity that nobody was told of": {"severity": "page", "told": False},
    "open": {"state": "open"},
}


@pytest.mark.parametrize("chosen", FILTERS.values(), ids=FILTERS)
def test_incidents_are_found_and_counted_by_an_index_of_what_is_asked_for(tmp_path, chosen):
    """At a million rows a rule that hardly ever fires was found by looking at each (`make bench PART=history`)."""
    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    plans = planned(store, lambda read: read.incidents(**chosen))
    store.close()
    assert plans
    assert [plan for plan in plans if plan.startswith("SCAN incidents")] == []


def test_old_rows_go_in_portions_so_that_others_can_write_in_between(url, monkeypatch):
    monkeypatch.setattr(store_module, "PRUNED_AT_ONCE", 10)
    store = Store.open(url)
    rows = [{"group_key": "g", "generation": n, "at_ms": START_MS + n, "body": "{}"} for n in range(35)]
    with store.engine.begin() as connection:
        connection.execute(insert(tables.generations), rows)
    left = []
    while store.prune(START_MS + 30):
        with store.engine.connect() as connection:
            left.append(connection.execute(select(func.count()).select_from(tables.generations)).scalar())
    assert left == [25, 15, 5]
    store.close()


def test_who_is_in_a_deleted_group_is_forgotten(url):
    store = Store.open(url)
    settings = Settings(cluster=CLUSTER)
    store.apply_batch(checkpoint_id="c", batch_id=0, outputs=[report("orders", view=view())], settings=settings)
    with store.engine.begin() as connection:
        connection.execute(tables.groups.delete())
    store.prune(0)
    with store.engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(tables.settled)).scalar() == 0
    store.close()


@contextmanager
def locked_for_a_second(file):
    """Another process writes to a SQLite file, and ends after a second."""
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(1, lambda: other.execute("COMMIT"))
    release.start()
    yield
    release.join()
    other.close()


class TestDiskAndLocks:
    """SQLite when the disk is full and when somebody else writes."""

    SETTINGS = Settings(cluster=CLUSTER)

    def test_a_full_disk_loses_nothing_and_the_batch_is_applied_when_there_is_room(self, tmp_path):
        """Burrow drops what its storage does not take within a second, and nobody looks at the result."""
        store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
        limit = ["PRAGMA max_page_count = 1"]  # it cannot shrink below what is used: the next page is refused
        event.listen(store.engine, "begin", lambda connection: connection.exec_driver_sql(limit[0]))
        outputs = [report(f"g{number}", finding(f"g{number}"), view=view(f"g{number}")) for number in range(500)]
        with pytest.raises(OperationalError, match="full"):
            store.apply_batch(checkpoint_id="c", batch_id=0, outputs=outputs, settings=self.SETTINGS)
        assert store.read.incidents().total == 0
        limit[0] = "PRAGMA max_page_count = 1000000"
        done = store.apply_batch(checkpoint_id="c", batch_id=0, outputs=outputs, settings=self.SETTINGS)
        assert (done.applied, store.read.incidents().total) == (True, 500)
        store.close()

    def test_a_new_file_that_another_process_writes_is_waited_for(self, tmp_path):
        with locked_for_a_second(tmp_path / "monitor.db"):
            Store.open(f"sqlite:///{tmp_path}/monitor.db").close()

    def test_a_locked_database_is_waited_for(self, tmp_path):
        store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
        outputs = [report("orders", finding(), view=view())]
        with locked_for_a_second(tmp_path / "monitor.db"):
            assert store.apply_batch(checkpoint_id="c", batch_id=0, outputs=outputs, settings=self.SETTINGS).applied
        store.close()
