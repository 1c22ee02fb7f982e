"""Whether a receiver is told of a step of an incident, and why. Pure; the tests are its truth tables.

The main rule: a receiver that was told that an incident opened is told that it closed, and no other receiver is,
even if the configuration has changed in between.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from coordinator_model.incidents import Kind
from streaming.config import Mode


class Reason(StrEnum):
    """What `why_notify` answers."""

    OPENED = "opened"
    FIRST_TOLD = "first-told"  # it was only recorded until now
    ESCALATED = "escalated"
    CLOSED = "closed"
    NO_NEWS = "no-news"  # better evidence for what is known
    RECORD_ONLY = "record-only"
    NEVER_TOLD = "never-told"  # the end of an incident of which no receiver was told

    @property
    def tells(self) -> bool:
        """Whether a message is written."""
        return self in (Reason.OPENED, Reason.FIRST_TOLD, Reason.ESCALATED, Reason.CLOSED)


def why_notify(kind: Kind, *, told: bool, mode: Mode) -> Reason:
    """Judge a step of an incident of which somebody was `told` before, in a group whose mode is `mode` now."""
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


class Waiting(NamedTuple):
    """A message that a receiver has not been given yet; `attempts`: how often it was tried, so may have arrived."""

    id: int
    transition: str
    attempts: int


def outdated(messages: Sequence[Waiting]) -> list[int]:
    """Name the messages that need not be sent any more, of those of one incident that waited for too long, in order.

    Only the newest still says how things are. If it says that all is over, and nothing of it was ever tried, then
    nobody was told of the trouble and nobody needs to be told of its end.
    """
    *older, newest = messages
    unheard = not any(message.attempts for message in messages)
    if newest.transition == Kind.CLOSED and messages[0].transition == Kind.OPENED and unheard:
        older.append(newest)
    return [message.id for message in older]
