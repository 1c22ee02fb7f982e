"""One `run` writes a cluster. Two real processes, on real databases, the first one stopped and woken up again."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event, select, text, update
from sqlalchemy.exc import DBAPIError, OperationalError

from streaming.config.settings import Settings
from streaming.store import Store, batch, lease, tables
from streaming.store.database import database_ms
from streaming.store.lease import Lease, LeaseHeldError, LeaseLostError
from tests.support import databases
from tests.support.outputs import CLUSTER, finding, progress, report, view
from tests.support.waiting import PATIENCE_S, await_true

SETTINGS = Settings(cluster=CLUSTER)
RUN = """
import sys, threading
from streaming.config.settings import Settings
from streaming.store import Store, lease
from streaming.store.lease import Lease, LeaseHeldError, LeaseLostError
from tests.support.outputs import CLUSTER, finding, progress, report, view
url, name, lease_ms, standby = sys.argv[1:]
lease.LEASE_MS, lease.RENEW_S, lease.LOOK_S = int(lease_ms), 0.2, 0.1
store, stop = Store.open(url), threading.Event()
mine = Lease(store.engine, CLUSTER)
try:
    mine.acquire(stop, standby=standby == "standby")
    print("acquired", flush=True)
    with mine.kept():
        for batch_id in range(10_000):
            store.apply_batch(
                checkpoint_id=name,
                batch_id=batch_id,
                outputs=[report(name, finding(name), view=view(name)), progress()],
                settings=Settings(cluster=CLUSTER),
                lease=mine,
            )
            print("wrote", flush=True)
            stop.wait(0.1)
except (LeaseHeldError, LeaseLostError) as error:
    print(f"{type(error).__name__}: {error}", flush=True)
    sys.exit(1)
"""


@pytest.fixture
def store(url) -> Iterator[Store]:
    opened = Store.open(url)
    yield opened
    opened.close()


class Run:
    """A process that writes batches as `run` does, and what it says."""

    def __init__(self, url: str, name: str, lease_ms: int, *, standby: bool) -> None:
        arguments = [url, name, str(lease_ms), "standby" if standby else "refuse"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, *arguments], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        )

    def says(self, word: str) -> str:
        """Read on until a line begins with a word."""
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith(word):
                return line
        raise AssertionError(f"no {word!r} before its end")


@pytest.fixture
def start(url):
    """Start processes; a lease lasts two seconds unless told."""
    started: list[Run] = []

    def _start(name: str, lease_ms: int = 2_000, *, standby: bool = False) -> Run:
        started.append(Run(url, name, lease_ms, standby=standby))
        return started[-1]

    yield _start
    for run in started:
        run.process.kill()
        run.process.communicate()


def written_by(store: Store) -> dict[str, int]:
    """The newest batch of each writer."""
    with store.engine.connect() as connection:
        return dict(
            connection.execute(select(tables.applied_batches.c.checkpoint_id, tables.applied_batches.c.batch_id)).all()
        )


def test_a_second_run_refuses_names_the_first_and_writes_nothing(start, store):
    first = start("first", lease_ms=60_000)
    first.says("wrote")
    second = start("second", lease_ms=60_000)
    refusal = second.says("LeaseHeldError")
    assert (
        f"cluster {CLUSTER} is already watched by process {first.process.pid} on {os.uname().nodename}, since 20"
        in refusal
    )
    assert "standby = true" in refusal
    assert "15 s after" not in refusal  # it is what is in force that is told
    assert "60 s after its last sign of life" in refusal
    assert second.process.wait(PATIENCE_S) == 1
    assert written_by(store).keys() == {"first"}
    first.says("wrote")
    assert store.read.incidents(state="open").total == 1


def stop_between_batches(run: Run, store: Store) -> None:
    """Stop a process where it holds no lock: of SQLite's file nothing but its end could take it."""
    while True:
        os.kill(run.process.pid, signal.SIGSTOP)
        with store.engine.connect() as connection:
            try:
                if connection.dialect.name == "sqlite":
                    connection.exec_driver_sql("PRAGMA busy_timeout = 50")
                    connection.execute(update(tables.runs).values(batch_id=0))
                    connection.rollback()
            except OperationalError:
                os.kill(run.process.pid, signal.SIGCONT)
                time.sleep(0.03)
                continue
            finally:
                connection.invalidate()
        return


def test_a_standby_takes_over_from_a_stopped_run(start, store):
    """The stopped run ends once it goes on, and writes nothing more."""
    first = start("first")
    first.says("wrote")
    second = start("second", standby=True)
    stop_between_batches(first, store)
    stopped_s = time.monotonic()
    second.says("acquired")
    assert time.monotonic() - stopped_s > 1
    second.says("wrote")
    before = written_by(store)["first"]
    os.kill(first.process.pid, signal.SIGCONT)
    assert f"was taken over by process {second.process.pid} on" in first.says("LeaseLostError")
    assert first.process.wait(PATIENCE_S) == 1
    second.says("wrote")
    assert written_by(store)["first"] == before


def test_one_that_is_killed_on_this_machine_is_followed_at_once(start):
    first = start("first", lease_ms=600_000)
    first.says("wrote")
    first.process.kill()
    first.process.wait()
    second = start("second", lease_ms=600_000)
    second.says("wrote")


def test_one_that_died_elsewhere_is_waited_for_and_no_longer(start, store):
    with store._writer.begin() as connection:
        Lease(store.engine, CLUSTER).check(connection)
        connection.execute(update(tables.run_leases).values(holder="elsewhere/1/x", host="elsewhere", pid=1))
    began_s = time.monotonic()
    start("second", lease_ms=2_000).says("wrote")
    assert 1 < time.monotonic() - began_s < PATIENCE_S


def test_one_that_ends_politely_leaves_nothing(store):
    mine = Lease(store.engine, CLUSTER)
    assert mine.acquire(threading.Event())
    with mine.kept(), pytest.raises(LeaseHeldError):
        quick(store, Lease(store.engine, CLUSTER), mine)
    assert Lease(store.engine, CLUSTER).acquire(threading.Event())


def quick(store, other, mine) -> None:
    """Let another one reach for what is renewed all the time."""
    ended = threading.Event()
    renewing = threading.Thread(target=lambda: [mine.renew() for _ in iter(lambda: ended.wait(0.1), True)])
    renewing.start()
    try:
        other.acquire(threading.Event())
    finally:
        ended.set()
        renewing.join()


def test_many_that_reach_at_once_are_one(url, monkeypatch):
    monkeypatch.setattr(lease, "LOOK_S", 0.05)
    stores = [Store.open(url) for _ in range(6)]
    stop, got = threading.Event(), []

    def reach(store: Store) -> None:
        mine = Lease(store.engine, CLUSTER)
        if mine.acquire(stop, standby=True):
            got.append(mine)

    threads = [threading.Thread(target=reach, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    await_true(lambda: got, "nobody has it")
    time.sleep(1)  # the others go on looking
    stop.set()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    for store in stores:
        store.close()


def test_each_cluster_has_its_own(store):
    stop = threading.Event()
    assert Lease(store.engine, "a").acquire(stop)
    assert Lease(store.engine, "b").acquire(stop)


def test_a_run_that_starts_has_not_caught_up(store):
    """Its last batch had; the next one takes longer, because Spark starts and there is much to read."""
    mine, batch = Lease(store.engine, CLUSTER), {"outputs": [progress()], "settings": SETTINGS}
    assert mine.acquire(threading.Event())
    store.apply_batch(checkpoint_id="c", batch_id=0, now_ms=1_000, **batch)
    assert [run.caught_up for run in store.read.runs()] == [True]
    store.note_start(mine)
    (starting,) = store.read.runs()
    assert (starting.caught_up, starting.alive_ms) == (False, 1_000)
    store.apply_batch(checkpoint_id="fresh", batch_id=0, now_ms=500, **batch)  # the database's clock was set back
    assert [run.caught_up for run in store.read.runs()] == [True]


def test_who_has_lost_the_lease_does_not_say_that_the_run_starts(store):
    store.apply_batch(checkpoint_id="c", batch_id=0, outputs=[progress()], settings=SETTINGS)
    assert Lease(store.engine, CLUSTER).acquire(threading.Event())
    store.note_start(Lease(store.engine, "another cluster"))
    with store._writer.begin() as connection:
        connection.execute(update(tables.run_leases).values(holder="another process"))
    store.note_start(Lease(store.engine, CLUSTER))
    assert [run.caught_up for run in store.read.runs()] == [True]


def test_the_check_is_part_of_the_batchs_transaction(store):
    """Whoever lost the lease between two statements of a batch writes nothing of it."""
    mine, other = Lease(store.engine, CLUSTER), Lease(store.engine, CLUSTER)
    mine.acquire(threading.Event())
    with store._writer.begin() as connection:
        connection.execute(tables.run_leases.delete())
        other.check(connection)
    outputs = [report("orders", finding(), view=view()), progress()]
    with pytest.raises(LeaseLostError):
        store.apply_batch(checkpoint_id="c", batch_id=0, outputs=outputs, settings=SETTINGS, lease=mine)
    assert mine.lost is not None
    assert store.read.groups().total == store.read.incidents().total == 0
    assert written_by(store) == {}
    applied = store.apply_batch(checkpoint_id="c", batch_id=0, outputs=outputs, settings=SETTINGS, lease=other)
    assert len(applied.transitions) == 1


def test_a_batch_that_took_long_leaves_a_lease_that_is_not_old(store, monkeypatch):
    """A standby sees the row only after the commit. It would take one as old as the transaction."""
    mine, other = Lease(store.engine, CLUSTER), Lease(store.engine, CLUSTER)
    assert mine.acquire(threading.Event())

    def takes_long(connection, _rows):
        past_ms = database_ms() - 2 * lease.LEASE_MS
        connection.execute(update(tables.run_leases).values(renewed_ms=past_ms))

    monkeypatch.setattr(batch, "write", takes_long)
    store.apply_batch(checkpoint_id="c", batch_id=0, outputs=[], settings=SETTINGS, lease=mine)
    assert other._take(None) is not None
    mine.renew()


def test_the_statement_that_renews_locks_out_whoever_would_take_over(url):
    """PostgreSQL: the other waits for the row, sees it renewed and leaves it. SQLite: it waits for the file."""
    stores = [Store.open(url), Store.open(url)]
    mine, other = (Lease(store.engine, CLUSTER) for store in stores)
    mine.acquire(threading.Event())
    with stores[0]._writer.begin() as connection:
        connection.execute(update(tables.run_leases).values(renewed_ms=database_ms() - 60_000))
    taken: list[object] = []
    with stores[0]._writer.begin() as connection:
        mine.check(connection)
        thread = threading.Thread(target=lambda: taken.append(other._take(None)))
        thread.start()
        time.sleep(0.5)
        assert taken == []
    thread.join()
    assert taken != [None]
    mine.renew()
    for store in stores:
        store.close()


def test_a_clock_that_is_set_back_keeps_nobody_out_for_ever(store, monkeypatch):
    """By the database's clock the lease of a dead one ends in an hour; but it was not renewed since it was seen."""
    now = [0.0]
    mine, other = Lease(store.engine, CLUSTER), Lease(store.engine, CLUSTER, clock=lambda: now[0])
    mine.acquire(threading.Event())
    with store._writer.begin() as connection:
        in_an_hour = {"renewed_ms": database_ms() + 3_600_000, "holder": "elsewhere/1/x"}
        connection.execute(update(tables.run_leases).values(in_an_hour))

    class Stop(threading.Event):
        def wait(self, timeout=None):
            now[0] += timeout
            return False

    assert other.acquire(Stop())
    assert lease.LEASE_MS / 1_000 <= now[0] < lease.LEASE_MS / 1_000 + 2


def test_a_transaction_that_stands_still_is_ended_by_postgresql(postgres_url, monkeypatch):
    """A `run` that is stopped in the middle of a batch holds the row; SQLite has no such means."""
    monkeypatch.setattr("streaming.store.database.IDLE_TRANSACTION_MS", 500)
    databases.empty(create_engine(postgres_url))
    store = Store.open(postgres_url)
    mine = Lease(store.engine, CLUSTER)
    mine.acquire(threading.Event())
    connection = store.engine.connect()
    connection.begin()
    mine.check(connection)
    time.sleep(1)
    assert Lease(store.engine, CLUSTER)._take(None) is not None  # not locked any more, and still held
    with pytest.raises(Exception, match="idle-in-transaction"):
        connection.execute(text("SELECT 1"))
    connection.invalidate()
    store.close()


def test_who_keeps_the_database_locked_is_named(url, monkeypatch):
    """In SQLite a process that is stopped in a transaction has the whole file: only ending it helps."""
    monkeypatch.setattr(lease, "WAIT_S", 0.2)
    first, second = Store.open(url), Store.open(url)
    shorten = "PRAGMA busy_timeout = 200" if url.startswith("sqlite") else "SELECT 1"
    event.listen(second.engine, "checkout", lambda raw, *_: raw.cursor().execute(shorten))
    mine = Lease(first.engine, CLUSTER)
    mine.acquire(threading.Event())
    with first._writer.begin() as connection:
        connection.execute(update(tables.run_leases).values(renewed_ms=database_ms() - 60_000, host="there", pid=7))
    with first._writer.begin() as connection:
        mine.check(connection)
        with pytest.raises(LeaseHeldError, match=r"process 7 on there, since 20.*holds a lock in the database"):
            Lease(second.engine, CLUSTER).acquire(threading.Event())
    for store in (first, second):
        store.close()


def test_a_database_that_refuses_writes_is_not_told_as_a_holder(url):
    """The row of a process that died is no reason to name it."""
    first, second = Store.open(url), Store.open(url)
    Lease(first.engine, CLUSTER).acquire(threading.Event())
    refuse = "PRAGMA query_only = 1" if url.startswith("sqlite") else "SET default_transaction_read_only = on"
    event.listen(second.engine, "connect", lambda raw, _: (raw.execute(refuse), raw.commit()))
    second.engine.dispose()
    with pytest.raises(DBAPIError, match=r"read-?only"):
        Lease(second.engine, CLUSTER).acquire(threading.Event())
    for store in (first, second):
        store.close()
