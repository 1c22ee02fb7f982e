"""Why a query failed, as the log says it: what is outside is named with what mends it, by what real parts raise."""

import errno
import os
import shutil
import sqlite3
from pathlib import Path

import psycopg
import pytest
from kafka.errors import KafkaTimeoutError
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from streaming.run.failures import failure_of, reason_of
from streaming.store import trouble
from tests.streaming.run.conftest import small_disk
from tests.support import databases

DATA = Path("/data")


def of_spark(said, cause=None):
    """As the job raises what Spark reports, with the sink's own exception as its cause."""
    error = RuntimeError(said)
    error.__cause__ = cause
    return error


def raised(engine, *statements):
    try:
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))
    except SQLAlchemyError as error:
        return error
    raise AssertionError("nothing was raised")


def sqlite(path, *statements):
    return raised(create_engine(f"sqlite:///{path}", connect_args={"timeout": 0.1}), *statements)


def locked(path):
    with sqlite3.connect(path, isolation_level=None) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        return sqlite(path, "CREATE TABLE a (b)")


def garbled(path):
    path.write_bytes(b"no database" * 1_000)
    return sqlite(path, "CREATE TABLE a (b)")


SQLITE = {
    "full": (lambda path: sqlite(path, "PRAGMA max_page_count = 1", "CREATE TABLE a (b)"), trouble.FULL),
    "read-only": (lambda path: sqlite(path, "PRAGMA query_only = 1", "CREATE TABLE a (b)"), trouble.READ_ONLY),
    "garbled": (garbled, trouble.DAMAGED),
    "without its folder": (lambda path: sqlite(path / "nowhere" / "a.db", "SELECT 1"), trouble.AWAY),
    "locked": (locked, trouble.BUSY),
}


@pytest.mark.parametrize(("broken", "advice"), SQLITE.values(), ids=SQLITE)
def test_what_is_wrong_with_sqlite_is_said_with_what_mends_it(tmp_path, broken, advice):
    failure = failure_of(of_spark("pages of Java", broken(tmp_path / "a.db")), DATA)
    assert failure.advice == advice
    assert failure.reason.startswith("the database: OperationalError: ") or advice == trouble.DAMAGED
    assert "CREATE TABLE" not in failure.reason


@pytest.fixture(scope="module")
def server():
    if reason := databases.missing():
        pytest.skip(reason)
    with databases.server() as started:
        yield started


POSTGRESQL = {
    "read-only": (
        "",
        ("SET default_transaction_read_only = on", "COMMIT", "CREATE TABLE a (b int)"),
        trouble.READ_ONLY,
    ),
    "not there": ("nowhere", ("SELECT 1",), trouble.AWAY),
    "of another owner": ("postgres", ("SET ROLE pg_monitor", "CREATE SCHEMA ours"), trouble.RIGHTLESS),
    "asked for a table that it has not": ("postgres", ("SELECT * FROM nothing",), None),
    "given a number too large": ("postgres", ("SELECT 3000000000::int",), None),
    "slow": ("", ("SET statement_timeout = 50", "SELECT pg_sleep(60)"), trouble.SLOW),
    "ended by its administrator": ("", ("SELECT pg_terminate_backend(pg_backend_pid())",), trouble.AWAY),
}


@pytest.mark.parametrize(("database", "statements", "advice"), POSTGRESQL.values(), ids=POSTGRESQL)
def test_what_is_wrong_with_postgresql_is_said_with_what_mends_it(server, database, statements, advice):
    engine = create_engine(
        server.url.replace("/postgres", f"/{database}") if database else server.url, poolclass=NullPool
    )
    assert failure_of(raised(engine, *statements), DATA).advice == advice


def test_a_table_of_postgresql_that_another_transaction_locks_is_waited_for(server):
    """As while a newer `serve` migrates it, or an administrator makes an index; we wait 15 s for a lock."""
    engine = create_engine(server.url, poolclass=NullPool)
    with engine.connect() as holder:
        holder.execute(text("LOCK TABLE pg_catalog.pg_description IN ACCESS EXCLUSIVE MODE"))
        error = raised(engine, "SET lock_timeout = 50", "SELECT * FROM pg_catalog.pg_description")
    assert failure_of(error, DATA).advice == trouble.CONTENDED


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("40P01", trouble.CONTENDED),
        ("40001", trouble.CONTENDED),
        ("25P03", trouble.PAUSED),
        ("53200", trouble.POOR),
        ("53300", trouble.CROWDED),
        ("58030", trouble.DISK_FAILS),
    ],
)
def test_what_postgresql_says_by_its_code_is_outside(code, advice):
    error = OperationalError("SELECT 1", {}, psycopg.errors.lookup(code)("told"))
    assert failure_of(error, DATA).advice == advice


def test_a_full_disk_of_postgresql_is_to_be_made_free(server):
    engine = create_engine(server.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with small_disk(server.folder / "small") as disk:
        if os.geteuid() == 0:
            shutil.chown(disk, "postgres")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE TABLESPACE small LOCATION '{disk}'"))
            connection.execute(text("CREATE TABLE filled (row text) TABLESPACE small"))
        more = "INSERT INTO filled SELECT repeat(md5(n::text), 60) FROM generate_series(1, 100000) n"
        failure = failure_of(raised(engine, more), DATA)
        with engine.connect() as connection:
            connection.execute(text("DROP TABLE filled"))
            connection.execute(text("DROP TABLESPACE small"))
    assert failure.advice == trouble.FULL


def test_a_server_that_is_away_is_to_be_started():
    engine = create_engine("postgresql+psycopg://monitor@127.0.0.1:1/postgres", poolclass=NullPool)
    failure = failure_of(raised(engine, "SELECT 1"), DATA)
    assert failure.advice == trouble.AWAY
    assert "refused" in failure.reason


OUTSIDE = {
    "our own file on a full disk": (of_spark("x", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))), "is full: free"),
    "a file nobody may write": (PermissionError(errno.EACCES, "Permission denied", "/data/x"), "make it writable"),
    "Spark's file on a full disk": (
        of_spark(
            "org.apache.spark.SparkException: Job aborted\nCaused by: java.io.IOException: No space left on device\n at"
        ),
        "is full: free",
    ),
    "RocksDB on a full disk": (
        of_spark("Caused by: org.rocksdb.RocksDBException: While appending to file: /tmp/x: No space left on device"),
        "is full: free",
    ),
    "brokers that do not answer": (KafkaTimeoutError("Unable to bootstrap"), "see that the brokers answer"),
    "a right that is missing": (
        of_spark("Caused by: org.apache.kafka.common.errors.GroupAuthorizationException: Not authorized: x"),
        "doctor --acls",
    ),
    "brokers away, said by Java": (
        of_spark("Caused by: org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired"),
        "see that the brokers answer",
    ),
}


@pytest.mark.parametrize(("error", "advice"), OUTSIDE.values(), ids=OUTSIDE)
def test_what_is_outside_is_waited_for(error, advice):
    assert advice in failure_of(error, DATA).advice


INSIDE = {
    "a state file": "Caused by: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] loading state",
    "a defect of ours": "  File x\nKeyError: 'group'",
    "a group whose id names a full disk": "KeyError: 'No space left on device'",
    "nothing at all": "",
}


@pytest.mark.parametrize("said", INSIDE.values(), ids=INSIDE)
def test_what_nothing_outside_explains_is_not(said):
    assert failure_of(of_spark(said), DATA).advice is None


UNREADABLE = {
    "a state file": (INSIDE["a state file"], True),
    "RocksDB's file": ("Caused by: org.rocksdb.RocksDBException: Corruption: bad magic number", True),
    "a log of Spark's": (
        "Input length = 1\n=== Streaming Query ===\nCurrent State: INITIALIZING\nThread State: x",
        True,
    ),
    "half a log of Spark's": ("java.lang.IllegalStateException: Incomplete log file in the offset log", True),
    "a defect of ours": (INSIDE["a defect of ours"], False),
    "a worker that was killed": ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", False),
    "a Spark that has stopped": ("IllegalStateException: Cannot call methods on a stopped SparkContext.", False),
    "a group with a hostile id": ("KeyError: 'Current State: INITIALIZING'", False),
}


@pytest.mark.parametrize(("said", "unreadable"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_checkpoint_is_suspected_only_if_the_failure_names_it(said, unreadable):
    assert failure_of(of_spark(said), DATA).unreadable is unreadable


def test_a_failure_without_a_name_is_told_by_what_pyspark_keeps_beside_it():
    """So Spark reports that it could not read a file of its offset log."""
    error = RuntimeError(
        "Input length = 1\n=== Streaming Query ===\nCurrent State: INITIALIZING\nThread State: RUNNABLE"
    )
    assert reason_of(error) == "Input length = 1"
    error._cause = RuntimeError("java.nio.charset.MalformedInputException: Input length = 1\n at")
    assert reason_of(error) == "java.nio.charset.MalformedInputException: Input length = 1"
