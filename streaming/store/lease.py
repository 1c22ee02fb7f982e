"""The lease of the `run` that writes a cluster: one row per cluster, renewed by its holder and checked in every batch.

Two of them would close each other's incidents, because each has not seen the groups that the other reads. So the second
one refuses to start, or stands by, until the first has not renewed the lease for `LEASE_MS`. That is measured by the
database's clock, never by the clock of either machine; in case that clock is set back, also by how long the row was
seen unchanged. A holder that was paused and resumes finds the row changed, in the same transaction in which it wants to
write, and writes nothing.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import structlog
from sqlalchemy import Connection, Engine, delete, or_, select, update
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from streaming.store import tables
from streaming.store.database import clean, database_ms, insert_if_absent, limit_waiting, writer_of
from streaming.store.holder import is_gone, process_name
from streaming.store.trouble import is_locked

LEASE_MS = 15_000
RENEW_S = 3.0
LOOK_S = 0.5
WAIT_S = 5.0
"""How long the statement that acquires the lease waits for another transaction."""

_LEASES = tables.run_leases
_KNOWN = _LEASES.c


class Holder(NamedTuple):
    """The holder of a cluster's lease. Instants by the database's clock."""

    holder: str
    host: str
    pid: int
    acquired_ms: int
    renewed_ms: int

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.acquired_ms / 1_000))
        return f"process {self.pid} on {self.host}, since {since}"


class LeaseHeldError(Exception):
    """Another `run` writes this cluster; the text names it and says what to do."""


class LeaseLostError(Exception):
    """Another `run` has taken this cluster over; the text names it."""


class Lease:
    """This process's lease on a cluster; thread-safe."""

    def __init__(self, engine: Engine, cluster: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.cluster = clean(cluster, 255)
        self.lost: LeaseLostError | None = None
        """Set once another process has taken over."""
        self._me = process_name()
        self._engine = engine
        self._writer = writer_of(engine)
        self._clock = clock
        self._log = structlog.get_logger("lease").bind(cluster=self.cluster)

    def acquire(self, stop: threading.Event, *, standby: bool = False) -> bool:
        """Acquire the lease, waiting for a holder that may have died; return False if told to stop.

        Raises `LeaseHeldError` once the holder is seen to be alive or keeps the row locked, unless `standby`.
        """
        seen: Holder | None = None
        seen_s = self._clock()
        while not stop.is_set():
            unchanged = seen if self._clock() - seen_s >= LEASE_MS / 1_000 else None
            try:
                holder = self._take(unchanged)
            except LeaseHeldError as error:
                if not standby:
                    raise
                self._log.warning("waiting", because=str(error))
                continue
            if holder is None:
                self._log.info("this run writes the cluster now")
                return True
            if seen is None:
                self._log.warning("another run has this cluster: is it alive?", holder=str(holder), standby=standby)
            elif holder != seen and not standby:
                raise LeaseHeldError(_refusal(self.cluster, holder))
            if holder != seen:
                seen, seen_s = holder, self._clock()
            stop.wait(LOOK_S)
        return False

    def check(self, connection: Connection) -> None:
        """Renew the lease, as the first statement of a transaction; raises `LeaseLostError` if it is lost."""
        limit_waiting(connection, LEASE_MS)
        if self.renew_in(connection):
            return
        if insert_if_absent(connection, _LEASES, self._row()):
            return
        holder = _holder(connection, self.cluster)
        self.lost = LeaseLostError(
            f"cluster {self.cluster} was taken over by {holder}: this run has written nothing since"
        )
        raise self.lost

    def renew_in(self, connection: Connection) -> bool:
        """Renew the lease if it is still this process's, and return whether it is.

        A long transaction renews at its end once more. Others see the row only after the commit; if it was as old as
        the transaction then, they could take it from a healthy holder.
        """
        mine = (_KNOWN.cluster == self.cluster) & (_KNOWN.holder == self._me)
        return connection.execute(update(_LEASES).where(mine).values(renewed_ms=database_ms())).rowcount == 1

    def renew(self) -> None:
        """Renew the lease in a separate transaction; raises `LeaseLostError`."""
        with self._writer.begin() as connection:
            self.check(connection)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew the lease every `RENEW_S` in a separate thread, because batches may pause; release it at the end."""
        ended = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(ended,), name="lease", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            ended.set()
            keeper.join(WAIT_S)
            self._release()

    def _keep(self, ended: threading.Event) -> None:
        while not ended.wait(RENEW_S):
            try:
                self.renew()
            except LeaseLostError:
                return
            except SQLAlchemyError as error:
                self._log.warning("the lease cannot be renewed", error=type(error).__name__)

    def _take(self, unchanged: Holder | None) -> Holder | None:
        """Take the row if there is none, its holder is gone, it has expired or it is still `unchanged`.

        Otherwise returns the holder; raises `LeaseHeldError` if the holder has locked the row in a transaction.
        """
        with self._engine.connect() as connection:
            holder = _holder(connection, self.cluster)
        free = [_KNOWN.renewed_ms <= database_ms() - LEASE_MS]
        if holder is not None and (holder == unchanged or is_gone(holder.holder)):
            free.append((_KNOWN.holder == holder.holder) & (_KNOWN.renewed_ms == holder.renewed_ms))
        try:
            with self._writer.begin() as connection:
                limit_waiting(connection, int(WAIT_S * 1_000))
                taking = update(_LEASES).where(_KNOWN.cluster == self.cluster, or_(*free)).values(self._row())
                if connection.execute(taking).rowcount == 1 or insert_if_absent(connection, _LEASES, self._row()):
                    return None
                return _holder(connection, self.cluster)
        except OperationalError as error:
            if holder is None or not is_locked(error):
                raise
            raise LeaseHeldError(_locked(self.cluster, holder)) from error

    def _row(self) -> dict[str, Any]:
        now_ms = database_ms()
        host = clean(socket.gethostname(), 255)
        return {"cluster": self.cluster, "holder": self._me, "host": host, "pid": os.getpid()} | {
            "acquired_ms": now_ms,
            "renewed_ms": now_ms,
        }

    def _release(self) -> None:
        try:
            with self._writer.begin() as connection:
                connection.execute(delete(_LEASES).where(_KNOWN.holder == self._me))
        except SQLAlchemyError as error:
            self._log.warning("the lease could not be released: it will expire", error=type(error).__name__)


def _holder(connection: Connection, cluster: str) -> Holder | None:
    columns = [_KNOWN[name] for name in Holder._fields]
    row = connection.execute(select(*columns).where(_KNOWN.cluster == cluster)).first()
    return None if row is None else Holder._make(row)


def _refusal(cluster: str, holder: Holder) -> str:
    return (
        f"cluster {cluster} is already watched by {holder}: two would close each other's incidents. End that one, or "
        f"set [run] standby = true to wait for it: it is taken over {LEASE_MS // 1_000} s after its last sign of life. "
        "Another Kafka cluster needs a `cluster` name of its own"
    )


def _locked(cluster: str, holder: Holder) -> str:
    return (
        f"cluster {cluster} is watched by {holder}, which holds a lock in the database and does not let go: it is "
        "stopped, or at work on a very large batch. Start this one again later, or end that process first"
    )
