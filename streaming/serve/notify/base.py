"""The protocol of a receiver, and its three possible answers."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import requests

SEVERITIES: Final = ("info", "warn", "page")  # from least to most severe
TIMEOUT_S: Final = (3.05, 5.0)  # to connect, and between two bytes of the response
LONGEST_PAUSE_MS: Final = 300_000
_RETRIED_STATUSES: Final = frozenset({408, 425, 429})

Payload = Mapping[str, Any]
"""A message: `incident` (the contract's object), `opened_ms`, `closed_ms`, `late`, `labels`, `runbook_url`; `message`
adds `missed_by_ms`, `unread_partitions`, `recent_events`, `group_url`, `description`."""


class Delivered(NamedTuple):
    """The receiver has accepted the message."""


class Retry(NamedTuple):
    """The receiver cannot accept the message now."""

    reason: str
    after_ms: int = 0
    """The pause that the receiver asks for."""


class Rejected(NamedTuple):
    """The receiver will not accept this message, now or later."""

    reason: str


Answer = Delivered | Retry | Rejected


class Receiver(Protocol):
    """One address. Its `name` is stable, because the outbox refers to it, and shows no secret."""

    name: str
    severities: Sequence[str]
    messages_at_once: int
    forgets: bool
    """Whether open incidents have to be sent to it again and again."""

    def send(self, payloads: Sequence[Payload]) -> Answer:
        """Deliver at most `messages_at_once` messages; does not raise."""
        ...


def at_least(severity: str) -> tuple[str, ...]:
    """Return the severities from `severity` upwards."""
    return SEVERITIES[SEVERITIES.index(severity) :]


def post(session: requests.Session, url: str, body: str, headers: Mapping[str, str] | None = None) -> Answer:
    """POST JSON and judge the response by its status. Its body is not read, because it may never end.

    Reasons do not contain the address: it may be a secret, and the receiver's name is shown beside them.
    """
    sent = {"Content-Type": "application/json", **(headers or {})}
    try:
        with session.post(
            url, data=body.encode(), headers=sent, timeout=TIMEOUT_S, allow_redirects=False, stream=True
        ) as answer:
            status, after_ms = answer.status_code, retry_after_ms(answer.headers.get("Retry-After"))
    except requests.RequestException as error:
        return Retry(_without_address(error))
    if 200 <= status < 300:
        return Delivered()
    reason = f"answered {status}"
    return Retry(reason, after_ms) if status in _RETRIED_STATUSES or status >= 500 else Rejected(reason)


def retry_after_ms(header: str | None) -> int:
    """Return the seconds of `Retry-After`, at most `LONGEST_PAUSE_MS`; a date in it is ignored."""
    return min(int(header[:9]) * 1_000, LONGEST_PAUSE_MS) if header and header.isascii() and header.isdigit() else 0


def _without_address(error: requests.RequestException) -> str:
    """Return the names of an error and of its cause; their messages would contain the address."""
    cause = getattr(error.args[0], "reason", None) if error.args else None
    return type(error).__name__ if cause is None else f"{type(error).__name__} ({type(cause).__name__})"
