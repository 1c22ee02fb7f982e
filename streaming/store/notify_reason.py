"""Whether receivers get a message about a step of an incident, and why. Pure functions; the tests are truth tables.

The main rule: who was told that an incident opened is told that it closed, even if the configuration has changed in
between, and nobody else is (`Outbox.fan_out`).
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from coordinator_model.incidents import Kind
from streaming.config.settings import Mode


class Reason(StrEnum):
    """The result of `why_notify`."""

    OPENED = "opened"
    FIRST_TOLD = "first-told"  # until now it was only recorded
    ESCALATED = "escalated"
    CLOSED = "closed"
    NO_NEWS = "no-news"  # better evidence for what was known
    RECORD_ONLY = "record-only"
    NEVER_TOLD = "never-told"  # the end of an incident that no receiver was told about

    @property
    def tells(self) -> bool:
        """Whether a message is written."""
        return self in (Reason.OPENED, Reason.FIRST_TOLD, Reason.ESCALATED, Reason.CLOSED)


def why_notify(kind: Kind, *, told: bool, mode: Mode) -> Reason:
    """Judge a step of an incident; `told`: receivers know that it is open, `mode`: its group's mode now."""
    match kind:
        case Kind.UPDATED:
            return Reason.NO_NEWS
        case Kind.CLOSED:
            return Reason.CLOSED if told else Reason.NEVER_TOLD
        case _ if mode != "notify":
            return Reason.RECORD_ONLY
        case Kind.OPENED:
            return Reason.OPENED
        case _:
            return Reason.ESCALATED if told else Reason.FIRST_TOLD


class Told(NamedTuple):
    """A message about an incident for one receiver; after `attempts` to send it, it may have arrived."""

    id: int
    transition: str
    attempts: int
    pending: bool
    delivered: bool


def outdated(messages: Sequence[Told]) -> list[int]:
    """Return the ids of the pending messages that need not be sent, of all messages about an incident, in order.

    Only the newest message is still true. If it says that the incident has closed, it is sent only to a receiver that
    may hold the incident open: one that was tried to be told, and was not told since that it is over.
    """
    *older, newest = (message for message in messages if message.pending)
    last = next((message for message in reversed(messages) if message.attempts), None)
    holds_it_closed = last is None or (last.transition == Kind.CLOSED and last.delivered)
    if newest.transition == Kind.CLOSED and holds_it_closed:
        older.append(newest)
    return [message.id for message in older]
