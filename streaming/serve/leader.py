"""Leader election: of several `serve`s on one database one sends. It renews a row, its lease.

No clock of another machine is trusted. A follower takes over when it has seen the row unchanged for `LEASE_S` by its
own clock. A leader that has not renewed the row for `TRUSTED_S` stops sending. The statement that takes over or renews
the row compares it with what was read before, so only one process succeeds. If the leader was killed on this machine,
its process is known to be gone, and a follower takes over at once.
"""

import threading
import time
from collections.abc import Callable

from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from streaming.store import tables
from streaming.store.database import writer_of
from streaming.store.holder import is_gone, process_name

LEASE_S = 15.0
RENEW_S = 2.0
TRUSTED_S = 6.0  # less than LEASE_S by more than a delivery takes, so that two never send at once

_LEASE = tables.leases


class Leader:
    """The claim of one process to lead. `refresh` has to be called often; `leads` may be called from any thread."""

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = process_name()
        self._engine = engine
        self._writer = writer_of(engine)
        self._clock = clock
        self._seen: tuple[str, int] | None = None
        self._seen_s = 0.0
        self._renewed_s: float | None = None
        self._lock = threading.Lock()

    def leads(self) -> bool:
        """Tell whether this process may send now."""
        return self._renewed_s is not None and self._clock() - self._renewed_s < TRUSTED_S

    def refresh(self) -> bool:
        """Renew the lease, or take it if it is free; return whether this process leads."""
        with self._lock:
            now_s = self._clock()
            if self._renewed_s is not None and now_s - self._renewed_s < RENEW_S:
                return True
            row = self._read()
            if row != self._seen:
                self._seen, self._seen_s = row, now_s
            free = row is None or row[0] == self.name or is_gone(row[0]) or now_s - self._seen_s >= LEASE_S
            self._renewed_s = now_s if free and self._take(row) else None
            return self.leads()

    def resign(self) -> None:
        """Give up the lease, so that another process can take over at once."""
        with self._lock:
            self._renewed_s = None
            with self._writer.begin() as connection:
                connection.execute(delete(_LEASE).where(_LEASE.c.holder == self.name))

    def _read(self) -> tuple[str, int] | None:
        with self._engine.connect() as connection:
            row = connection.execute(select(_LEASE.c.holder, _LEASE.c.renewals)).first()
        return None if row is None else (row.holder, row.renewals)

    def _take(self, row: tuple[str, int] | None) -> bool:
        """Write the row if it is still the one that was read; return whether it was."""
        if row is None:
            try:
                with self._writer.begin() as connection:
                    connection.execute(insert(_LEASE), {"name": "notifier", "holder": self.name, "renewals": 0})
            except IntegrityError:
                return False
            return True
        unchanged = (_LEASE.c.holder == row[0]) & (_LEASE.c.renewals == row[1])
        values = {"holder": self.name, "renewals": row[1] + 1}
        with self._writer.begin() as connection:
            return connection.execute(update(_LEASE).where(unchanged).values(values)).rowcount == 1
