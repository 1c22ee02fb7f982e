"""What a database error means and what to do, in one line, without the SQL and its values."""

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

FULL = "its disk is full: free space there"
READ_ONLY = "it refuses writes: make it writable again"
DAMAGED = "it is damaged: restore a backup, or move it away and start again without its history"
AWAY = "it does not answer: start it, or correct [store] url"
BUSY = "another process keeps it locked: end that process, or move to PostgreSQL"
REFUSED = "it refuses the login: see [store] url and password_file"
RIGHTLESS = "its user lacks a right: grant it"
CROWDED = "it takes no more connections: raise max_connections, or end the processes that hold them"
POOR = "it has too little memory or another resource: give it more"
DISK_FAILS = "its disk fails: see the system's log"
CONTENDED = "another transaction keeps what it needs locked: find it in pg_stat_activity, and end it if it stays"
SLOW = "it cancelled a statement that took too long: find out why it is slow, or raise statement_timeout"
PAUSED = "it ended a transaction because this process paused in it: find out why this machine is slow"

LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED", "55P03")
_BY_CODE = {
    # prefixes of sqlite3.Error.sqlite_errorname
    "SQLITE_FULL": FULL,
    "SQLITE_READONLY": READ_ONLY,
    "SQLITE_CANTOPEN": AWAY,
    "SQLITE_IOERR": DISK_FAILS,
    "SQLITE_CORRUPT": DAMAGED,
    "SQLITE_NOTADB": DAMAGED,
    "SQLITE_BUSY": BUSY,
    "SQLITE_LOCKED": BUSY,
    # prefixes of psycopg.Error.sqlstate (PostgreSQL, appendix A), longer ones first
    "53100": FULL,
    "53300": CROWDED,
    "53": POOR,
    "55P03": CONTENDED,
    "40": CONTENDED,
    "57014": SLOW,
    "25P03": PAUSED,
    "58": DISK_FAILS,
    "42501": RIGHTLESS,
    "25006": READ_ONLY,
    "28": REFUSED,
    "3D000": AWAY,
    "57P": AWAY,
    "08": AWAY,
    "XX001": DAMAGED,
    "XX002": DAMAGED,
}


def trouble(error: SQLAlchemyError) -> tuple[str, str | None]:
    """Return the first line of the database's message and advice, or None if the database is not at fault.

    An error without a code is a connection error.
    """
    original = error.orig if isinstance(error, DBAPIError) else None
    if original is None:
        return type(error).__name__, AWAY if isinstance(error, PoolTimeoutError) else None
    code = _code(original)
    advice = AWAY if code is None else next((what for known, what in _BY_CODE.items() if code.startswith(known)), None)
    message = str(original).strip().partition("\n")[0]
    return f"{type(original).__name__}: {message}"[:300], advice


def as_fields(error: SQLAlchemyError) -> dict[str, str]:
    """Return what `trouble` tells as fields of a log line."""
    message, advice = trouble(error)
    return {"error": message} if advice is None else {"error": message, "advice": advice}


def is_locked(error: DBAPIError) -> bool:
    """Whether another process has the row, or in SQLite the whole file, in a transaction."""
    return (_code(error.orig) or "").startswith(LOCKED)


def _code(original: BaseException | None) -> str | None:
    return getattr(original, "sqlite_errorname", None) or getattr(original, "sqlstate", None)
