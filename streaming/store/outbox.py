"""Messages to receivers: written in the same transaction as their incident, delivered at least once, in order.

A message is pending until it is delivered, given up (column `dead`) or dismissed. It is dismissed if it is outdated by
the time its receiver can be reached again. Only the oldest pending message of an incident is sent to a receiver, so
that a closing can never overtake its opening.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, Select, bindparam, delete, func, insert, select, update

from coordinator_model.incidents import Kind
from streaming.store import tables
from streaming.store.database import clean, clock_of, database_ms, in_portions, writer_of
from streaming.store.notify_reason import Told, outdated
from streaming.store.pages import Object, Page, in_portions_of
from streaming.store.reader import is_told, payload_of

_OUTBOX = tables.outbox
_PENDING = _OUTBOX.c.delivered_ms.is_(None) & _OUTBOX.c.dead.is_(False) & _OUTBOX.c.dismissed_ms.is_(None)
OUTDATED_MS = 300_000
"""How long a message may wait before it is checked whether it is still true."""
_IS_STALE = (func.min(_OUTBOX.c.created_ms) < database_ms() - OUTDATED_MS) & (func.count() > 1)
"""Whether, of the pending messages of one incident for one receiver, older ones may be `outdated`."""
_CHAINS_AT_ONCE = 1_000
_ERROR_CHARACTERS = 500
_DISMISS = update(_OUTBOX).where(_OUTBOX.c.id == bindparam("message")).values(dismissed_ms=database_ms())
_LETTERS_AT_ONCE = 100


class Delivery(NamedTuple):
    """One message for one receiver; `attempts`: how often it was tried before."""

    id: int
    incident_id: str
    transition: str
    created_ms: int
    payload: str
    attempts: int


class OutboxTotals(NamedTuple):
    """What `/metrics` shows about one receiver; `oldest_ms`: when its oldest pending message was written."""

    receiver: str
    pending: int
    dead: int
    delivered: int
    oldest_ms: int | None


class Missed(NamedTuple):
    """A summary, for one cluster, of the incidents that opened and closed while one receiver could not be reached."""

    cluster: str
    receiver: str
    pages: int
    lesser: int
    opened_ms: int
    """When the first of them opened."""
    closed_ms: int
    """When the last of them closed."""
    dismissed_ms: int
    """When the first of them was dismissed."""


class Outbox:
    """The outbox table, for `serve`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writer = writer_of(engine)

    def fan_out(self, receivers: Mapping[str, Sequence[str]]) -> int:
        """Turn each new message into one for each receiver that wants its severity; return how many were new.

        A closing goes to the receivers that hold the incident open, and to no other: one of them may want less now,
        but it would show the incident as open for ever.
        """
        with self._engine.connect() as connection:  # read first: `run` needs the write lock
            if connection.execute(select(_OUTBOX.c.id).where(_OUTBOX.c.receiver == "").limit(1)).first() is None:
                return 0
        with self._writer.begin() as connection:
            new = connection.execute(
                select(_OUTBOX).where(_OUTBOX.c.receiver == "").order_by(_OUTBOX.c.id).with_for_update()
            ).all()
            held = held_open(connection, (row.incident_id for row in new if row.transition == Kind.CLOSED))
            copies = list(_copies(new, receivers, held))
            for portion in in_portions(row.id for row in new):  # a `run` may have written others meanwhile
                connection.execute(delete(_OUTBOX).where(_OUTBOX.c.id.in_(portion)))
            if copies:
                connection.execute(insert(_OUTBOX), copies)
        return len(new)

    def tell_open(self, receivers: Mapping[str, Sequence[str]]) -> int:
        """Write a message about each open incident that a receiver should know of and does not; return how many.

        The receiver is new, has another name since its address or key was corrected, wants more than before, or refused
        the message until it was given up. An incident makes no second message as long as one is pending.
        """
        with self._writer.begin() as connection:
            now_ms = clock_of(connection)
            messages = [
                new_message(
                    row.incident_id, row.transition, row.severity, json.dumps(payload_of(row)), now_ms, receiver
                )
                for receiver, severities in receivers.items()
                for row in connection.execute(_unknown_to(receiver, severities))
            ]
            if messages:
                connection.execute(insert(_OUTBOX), messages)
        return len(messages)

    def due(self, receiver: str, now_ms: int, limit: int = 100) -> list[Delivery]:
        """Return what to send to a receiver now: the oldest pending message of each incident.

        The least tried come first, so that a message that the receiver fails on holds up no other; among them the
        oldest. Incidents that `dismiss_outdated` still has to check are left out.
        """
        first = (
            select(func.min(_OUTBOX.c.id))
            .where(_PENDING, _OUTBOX.c.receiver == receiver)
            .group_by(_OUTBOX.c.incident_id)
            .having(~_IS_STALE)
        )
        columns = [_OUTBOX.c[name] for name in Delivery._fields]
        chosen = select(*columns).where(_OUTBOX.c.id.in_(first), _OUTBOX.c.next_attempt_ms <= now_ms)
        ordered = chosen.order_by(_OUTBOX.c.attempts, _OUTBOX.c.id)
        with self._engine.connect() as connection:
            return [Delivery._make(row) for row in connection.execute(ordered.limit(limit))]

    def dismiss_outdated(self, receiver: str) -> int:
        """Dismiss a receiver's outdated messages; return how many."""
        stale = (
            select(_OUTBOX.c.incident_id)
            .where(_PENDING, _OUTBOX.c.receiver == receiver)
            .group_by(_OUTBOX.c.incident_id)
            .having(_IS_STALE)
            .limit(_CHAINS_AT_ONCE)
        )
        columns = [_OUTBOX.c[name] for name in ("incident_id", "id", "transition", "attempts")]
        states = (_PENDING.label("pending"), _OUTBOX.c.delivered_ms.is_not(None).label("delivered"))
        known = select(*columns, *states).where(_OUTBOX.c.receiver == receiver, _OUTBOX.c.incident_id.in_(stale))
        dismissed = 0
        while True:
            with self._engine.connect() as connection:  # read first: `run` needs the write lock
                rows = connection.execute(known.order_by(_OUTBOX.c.incident_id, _OUTBOX.c.id)).all()
            chains = groupby(rows, key=lambda row: row.incident_id)
            ids = [found for _, chain in chains for found in outdated([Told._make(row[1:]) for row in chain])]
            if not ids:
                return dismissed
            with self._writer.begin() as connection:
                connection.execute(_DISMISS, [{"message": message} for message in ids])
            dismissed += len(ids)

    def missed(self, since_ms: int) -> list[Missed]:
        """Sum up the incidents dismissed unseen in the last `since_ms`; only sums that include a `page` incident.

        A closing that gave way to a newer message about its incident does not count: that one was told, or counts.
        """
        known, newer = tables.incidents.c, _OUTBOX.alias()
        is_page = known.severity == "page"
        gave_way = (
            select(newer.c.id)
            .where(newer.c.incident_id == _OUTBOX.c.incident_id, newer.c.receiver == _OUTBOX.c.receiver)
            .where(newer.c.id > _OUTBOX.c.id, newer.c.created_ms <= _OUTBOX.c.dismissed_ms)
            .exists()
        )
        is_over = _OUTBOX.c.transition == Kind.CLOSED
        over = is_over & (_OUTBOX.c.dismissed_ms > database_ms() - since_ms) & ~gave_way
        statement = (
            select(
                known.cluster,
                _OUTBOX.c.receiver,
                func.count().filter(is_page),
                func.count().filter(~is_page),
                func.min(known.opened_ms),
                func.max(known.closed_ms),
                func.min(_OUTBOX.c.dismissed_ms),
            )
            .join_from(_OUTBOX, tables.incidents, _OUTBOX.c.incident_id == known.incident_id)
            .where(over)
            .group_by(known.cluster, _OUTBOX.c.receiver)
            .having(func.count().filter(is_page) > 0)
        )
        with self._engine.connect() as connection:
            return [Missed._make(row) for row in connection.execute(statement)]

    def attempt(self, ids: Sequence[int]) -> None:
        """Count an attempt before it is made: whatever its outcome, the receiver may have got the message."""
        with self._writer.begin() as connection:
            connection.execute(update(_OUTBOX).where(_OUTBOX.c.id.in_(ids)).values(attempts=_OUTBOX.c.attempts + 1))

    def done(self, ids: Sequence[int], now_ms: int) -> None:
        """Mark messages delivered."""
        with self._writer.begin() as connection:
            connection.execute(update(_OUTBOX).where(_OUTBOX.c.id.in_(ids)).values(delivered_ms=now_ms))

    def failed(self, ids: Sequence[int], error: str, next_attempt_ms: int | None) -> None:
        """Record why an attempt failed; try again at `next_attempt_ms`, or never if that is None."""
        values = {
            "last_error": clean(error, _ERROR_CHARACTERS),
            "dead": next_attempt_ms is None,
            "next_attempt_ms": next_attempt_ms or 0,
        }
        with self._writer.begin() as connection:
            connection.execute(update(_OUTBOX).where(_OUTBOX.c.id.in_(ids)).values(values))

    def give_up_removed_receivers(self, receivers: Sequence[str]) -> int:
        """Give up the messages to receivers that are no longer configured; return how many."""
        removed = _PENDING & _OUTBOX.c.receiver.not_in([*receivers, ""])
        values = {"dead": True, "last_error": "this receiver is not configured any more"}
        with self._writer.begin() as connection:
            return connection.execute(update(_OUTBOX).where(removed).values(values)).rowcount

    def dead_letters(self, limit: int = 100, offset: int = 0) -> Page[int]:
        """Return the messages that were given up, newest first, each with its content."""
        dead = _OUTBOX.c.dead.is_(True)
        statement = select(_OUTBOX.c.id).where(dead).order_by(_OUTBOX.c.id.desc()).limit(limit).offset(offset)
        with self._engine.connect() as connection:
            ids = connection.execute(statement).scalars().all()
            total = connection.execute(select(func.count()).select_from(_OUTBOX).where(dead)).scalar_one()
        return Page(total, in_portions_of(ids, _LETTERS_AT_ONCE), self._letters)

    def _letters(self, ids: Sequence[int]) -> dict[int, Object]:
        with self._engine.connect() as connection:
            rows = connection.execute(select(_OUTBOX).where(_OUTBOX.c.id.in_(ids))).all()
        return {
            row.id: {
                "receiver": row.receiver,
                "created_ms": row.created_ms,
                "attempts": row.attempts,
                "last_error": row.last_error,
                **json.loads(row.payload)["incident"],
            }
            for row in rows
        }

    def totals(self) -> list[OutboxTotals]:
        """Sum up messages by receiver; the receiver "" has those that `serve` has not fanned out yet."""
        by = _OUTBOX.c.receiver
        statement = select(
            by,
            func.count().filter(_PENDING),
            func.count().filter(_OUTBOX.c.dead.is_(True)),
            func.count().filter(_OUTBOX.c.delivered_ms.is_not(None)),
            func.min(_OUTBOX.c.created_ms).filter(_PENDING),
        ).group_by(by)
        with self._engine.connect() as connection:
            return [OutboxTotals._make(row) for row in connection.execute(statement)]


def held_open(connection: Connection, incident_ids: Iterable[str]) -> defaultdict[str, set[str]]:
    """Return the receivers of some incidents whose newest message, whatever became of it, says that it is open."""
    held: defaultdict[str, set[str]] = defaultdict(set)
    place = (_OUTBOX.c.incident_id, _OUTBOX.c.receiver)
    for portion in in_portions(incident_ids):
        newest = select(func.max(_OUTBOX.c.id)).where(_OUTBOX.c.incident_id.in_(portion)).group_by(*place)
        chosen = select(*place).where(_OUTBOX.c.id.in_(newest), _OUTBOX.c.transition != Kind.CLOSED)
        for row in connection.execute(chosen):
            held[row.incident_id].add(row.receiver)
    return held


def _copies(
    new: Iterable[Row[Any]], receivers: Mapping[str, Sequence[str]], held: defaultdict[str, set[str]]
) -> Iterator[dict[str, Any]]:
    """Make the messages for receivers, in order; `held`: who holds which incident open before them."""
    for row in new:
        holders, is_closing = held[row.incident_id], row.transition == Kind.CLOSED
        told = [
            receiver
            for receiver, severities in receivers.items()
            if (receiver in holders if is_closing else row.severity in severities)
        ]
        held[row.incident_id] = set() if is_closing else holders | set(told)
        copy = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
        del copy["id"]
        yield from ({**copy, "receiver": receiver} for receiver in told)


def _unknown_to(receiver: str, severities: Sequence[str]) -> Select[Any]:
    """Select the open incidents of some severities that are told, and that a receiver does not hold open.

    Its newest message about them is missing, was given up or is a closing. Receiver "": `fan_out` comes to it.
    """
    incident, its_own = tables.incidents.c, _OUTBOX.c.receiver.in_([receiver, ""])
    newest = select(func.max(_OUTBOX.c.id)).where(_OUTBOX.c.incident_id == incident.incident_id, its_own)
    known = select(_OUTBOX.c.id).where(
        _OUTBOX.c.id == newest.correlate(tables.incidents).scalar_subquery(),
        _OUTBOX.c.dead.is_(False),
        _OUTBOX.c.transition != Kind.CLOSED,
    )
    return select(tables.incidents).where(is_told(severities), ~known.exists()).order_by(incident.opened_ms)


def new_message(
    incident_id: str, transition: str, severity: str, payload: str, now_ms: int, receiver: str = ""
) -> dict[str, Any]:
    """Return the row of a message about an incident. Receiver "": `fan_out` copies it for each receiver."""
    return {
        "incident_id": incident_id,
        "transition": transition,
        "severity": severity,
        "created_ms": now_ms,
        "receiver": receiver,
        "payload": payload,
        "attempts": 0,
        "next_attempt_ms": 0,
        "dead": False,
    }
