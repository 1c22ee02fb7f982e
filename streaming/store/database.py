"""Engines for SQLite and PostgreSQL, the schema, and the few statements whose syntax differs between them."""

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    Table,
    bindparam,
    create_engine,
    delete,
    event,
    func,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import NullPool
from sqlalchemy.sql.compiler import SQLCompiler
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from streaming.store import migrations

BUSY_TIMEOUT_S = 30
IDLE_TRANSACTION_MS = 60_000
PARAMETERS = 5_000  # at most, in one statement; the smallest limit is 32,766
TIME_LIMITS = {
    "connect_timeout": 10,  # s
    "tcp_user_timeout": 20_000,  # ms, for what was sent and is not acknowledged
    "keepalives_idle": 10,  # s, while an answer is awaited
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
"""After how long a PostgreSQL that vanished from the network is an error: Linux waits 15 minutes, or two hours."""
_LIBPQ = ("psycopg", "psycopg2")  # the drivers that know these limits
_SCHEMA_LOCK = 8_844_001  # any number, the same in every process: PostgreSQL's advisory lock around the schema


class StoreError(Exception):
    """The database cannot be opened or was made by another version; the text says what to do."""


class Schema(NamedTuple):
    """The version of the schema that a database has (None: it is empty), and the version that this program needs."""

    found: str | None
    needed: str


def open_engine(url: str) -> Engine:
    """Connect and create missing tables; raises `StoreError` without the URL's password."""
    with _errors_of(url):
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            engine = _sqlite(url, parsed.database)
        else:
            engine = create_engine(url, pool_pre_ping=True, connect_args=time_limits(parsed))
        _migrate(engine)
    return engine


def look(url: str) -> Schema:
    """Return the version of a database's schema without changing anything, files included; raises `StoreError`.

    A SQLite file must exist.
    """
    with _errors_of(url), read_only_engine(url).connect() as connection:
        return Schema(migrations.revision_of(connection), migrations.head())


def read_only_engine(url: str) -> Engine:
    """Return an engine that changes nothing, files included. A SQLite file must exist."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        file = Path(parsed.database or "")
        return create_engine("sqlite://", creator=lambda: _read_only(file), poolclass=NullPool)
    engine = create_engine(url, poolclass=NullPool, connect_args=time_limits(parsed))
    return engine.execution_options(postgresql_readonly=True)


def time_limits(url: URL) -> dict[str, int]:
    """Return the limits for a connection to PostgreSQL that its URL does not set itself."""
    if url.get_backend_name() != "postgresql" or url.get_driver_name() not in _LIBPQ:
        return {}
    return {name: limit for name, limit in TIME_LIMITS.items() if name not in url.query}


@contextmanager
def _errors_of(url: str) -> Iterator[None]:
    """Turn the errors of a database into a `StoreError` that does not contain the URL's password."""
    unknown = "[store] url: not a database URL that SQLAlchemy knows"
    try:
        shown = make_url(url).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):  # ValueError: of the port
        raise StoreError(f"{unknown}: dialect://user@host:port/database") from None
    try:
        yield
    except (ArgumentError, NoSuchModuleError):
        raise StoreError(unknown) from None
    except ImportError as error:
        raise StoreError(f"[store] url: its driver is not installed: {error}") from None
    except migrations.UnknownSchemaError as error:
        raise StoreError(f"the database was made by a newer version of this program ({error})") from None
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise StoreError(f"cannot open {shown}: {getattr(error, 'orig', None) or error}") from None


def writer_of(engine: Engine) -> Engine:
    """Return an engine on the same pool whose transactions take SQLite's write lock at their beginning.

    A transaction that reads first and writes later fails at once if another process has written in between, whatever
    the busy timeout. So writers wait before they begin.
    """
    return engine.execution_options(write_lock=True)


def upsert(
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    changing: Sequence[str] = (),
    if_given: Sequence[str] = (),
) -> None:
    """Insert rows. If the primary key exists, update the columns `changing`; without any, skip existing unique keys.

    A column of `if_given` keeps its old value if the new one is NULL.
    """
    if not rows:
        return
    # SQLAlchemy would look at each value of each row, which takes longer than to write them.
    sql = _upsert_sql(connection.dialect, table, tuple(rows[0]), tuple(changing), tuple(if_given))
    names = sql.positiontup
    values = list(rows) if names is None else [tuple(map(row.__getitem__, names)) for row in rows]
    connection.exec_driver_sql(str(sql), values)


@lru_cache(maxsize=128)
def _upsert_sql(
    dialect: Dialect, table: Table, columns: tuple[str, ...], changing: tuple[str, ...], if_given: tuple[str, ...]
) -> SQLCompiler:
    build = postgresql.insert if dialect.name == "postgresql" else sqlite.insert
    statement = build(table)
    if changing:
        new: dict[str, Any] = {name: statement.excluded[name] for name in changing}
        new |= {name: func.coalesce(statement.excluded[name], table.c[name]) for name in if_given}
        statement = statement.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=new)
    else:
        statement = statement.on_conflict_do_nothing()
    return statement.compile(dialect=dialect, column_keys=list(columns))


def add_up(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], column: Column[int]) -> None:
    """Insert rows, or add their `column` to the stored value."""
    if not rows:
        return
    build = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = build(table)
    total = {column.name: column + statement.excluded[column.name]}
    keys = list(table.primary_key.columns)
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=total), list(rows))


def existing(connection: Connection, column: Column[str], values: Iterable[str]) -> set[str]:
    """Return which of many values a column has; in portions, because the parameters of a statement are limited."""
    found: set[str] = set()
    for portion in in_portions(values):
        found.update(connection.execute(select(column).where(column.in_(portion))).scalars())
    return found


def in_portions(values: Iterable[str]) -> Iterator[list[str]]:
    """Split values into portions that fit into one statement."""
    wanted = iter(values)
    while portion := list(islice(wanted, PARAMETERS)):
        yield portion


def remove(connection: Connection, column: Column[str], values: Iterable[str]) -> None:
    """Delete the rows whose column holds one of many values."""
    if rows := [{"value": value} for value in values]:
        connection.execute(delete(column.table).where(column == bindparam("value")), rows)


def insert_if_absent(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row, whose values may be expressions; return False if its key exists."""
    build = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = build(table).values(dict(row)).on_conflict_do_nothing()
    return connection.execute(statement, execution_options={"preserve_rowcount": True}).rowcount == 1


class database_ms(ColumnElement[int]):  # noqa: N801 - an SQL function
    """The database's clock when a statement runs, in epoch milliseconds: the same for all processes that use it."""

    type = BigInteger()
    inherit_cache = True


@compiles(database_ms)
def _now_of_postgresql(_element: database_ms, _compiler: Any, **_: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"


@compiles(database_ms, "sqlite")
def _now_of_sqlite(_element: database_ms, _compiler: Any, **_: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


def clock_of(connection: Connection) -> int:
    """Read the database's clock."""
    return connection.execute(select(database_ms())).scalar_one()


def limit_waiting(connection: Connection, timeout_ms: int) -> None:
    """Limit a PostgreSQL transaction: how long it waits for locks, and how long it may be idle while it holds locks.

    Otherwise a process that is paused in the middle of a batch would keep all others waiting. In SQLite such a process
    keeps the file locked, and only ending it helps.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = {timeout_ms:d}"))
        connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = {IDLE_TRANSACTION_MS:d}"))


def group_key(cluster: str, group: str) -> str:
    """Hash a cluster and a group id; the length keeps ("a", "bc") apart from ("ab", "c")."""
    text_bytes = f"{len(cluster)}:{cluster}{group}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(text_bytes).hexdigest()


def clean(value: object, limit: int | None = None) -> str:
    """Make a client's text storable: no NUL, no lone surrogate, at most `limit` characters."""
    text = str(value)
    if not text.isascii() or "\x00" in text:
        text = text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
    return text[:limit]


def _sqlite(url: str, database: str | None) -> Engine:
    if database and database != ":memory:":
        Path(database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver would begin transactions too late
        # Readers never wait for the writer (WAL). FULL: after a power cut Spark's checkpoint must not be ahead of us.
        # A batch of a large cluster writes about 10 MB: with the default log of 4 MB, every commit would copy it all.
        _when_not_busy()(connection.execute, "PRAGMA journal_mode=WAL")
        for pragma in ("synchronous=FULL", "foreign_keys=ON", "wal_autocheckpoint=8192"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        immediate = connection.get_execution_options().get("write_lock", False)
        if (
            immediate
        ):  # with the default of 2 MiB a large batch's pages are written to the log before the commit, and read back
            connection.exec_driver_sql("PRAGMA cache_size=-65536")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine


def _when_not_busy() -> Retrying:
    """Retry while SQLite is busy: its own busy timeout does not hold for the first switch of a file to WAL.

    The switch turns a read lock into a write lock, and SQLite does not wait for that, as two might wait for each other.
    """
    return Retrying(
        retry=retry_if_exception(lambda error: getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY),
        stop=stop_after_delay(BUSY_TIMEOUT_S),
        wait=wait_fixed(0.05),
        reraise=True,
    )


def _read_only(file: Path) -> sqlite3.Connection:
    """Open a SQLite file without creating files next to it, and without a checkpoint of its log.

    If there is no log, no process has the file open, so it may be read as immutable. With `mode=ro` alone SQLite would
    leave an empty log behind.
    """
    log = file.with_name(f"{file.name}-wal")
    options = "mode=ro" if log.exists() else "mode=ro&immutable=1"
    return sqlite3.connect(f"{file.absolute().as_uri()}?{options}", uri=True)


def _migrate(engine: Engine) -> None:
    """Migrate the schema to the newest version, only once, whether `run` or `serve` starts first."""
    with writer_of(engine).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _SCHEMA_LOCK})
        migrations.upgrade(connection)
