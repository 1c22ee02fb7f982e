"""What a receiver is, and the three things it can answer."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import requests

SEVERITIES: Final = ("info", "warn", "page")  # from least to most bad
TIMEOUT_S: Final = (3.05, 5.0)  # to connect, and between two bytes of the answer
LONGEST_PAUSE_MS: Final = 300_000
_RETRIED_STATUSES: Final = frozenset({408, 425, 429})

Payload = Mapping[str, Any]
"""`incident` (the contract's object), `opened_ms`, `closed_ms`, `late`, `labels`, `runbook_url`; and what `message`
adds: `missed_by_ms`, `unread_partitions`, `recent_events`, `group_url`, `description`."""


class Delivered(NamedTuple):
    """The receiver has it."""


class Retry(NamedTuple):
    """The receiver cannot take it now."""

    reason: str
    after_ms: int = 0
    """How long it asks to be left alone."""


class Rejected(NamedTuple):
    """The receiver will not take it as it is."""

    reason: str


Answer = Delivered | Retry | Rejected


class Receiver(Protocol):
    """One address. `name` is stable, since the outbox refers to it, and shows no secret."""

    name: str
    severities: Sequence[str]
    messages_at_once: int
    forgets: bool
    """Whether open incidents have to be sent to it again and again."""

    def send(self, payloads: Sequence[Payload]) -> Answer:
        """Deliver at most `messages_at_once`; never raises."""
        ...


def at_least(severity: str) -> tuple[str, ...]:
    """Name the severities from `severity` upwards."""
    return SEVERITIES[SEVERITIES.index(severity) :]


def post(session: requests.Session, url: str, body: str, headers: Mapping[str, str] | None = None) -> Answer:
    """POST JSON and judge the answer by its status; its body is not read, for it may never end.

    Reasons do not name the address: it may be a secret, and the receiver's name stands beside them.
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
    """Read `Retry-After` in seconds, within reason; its form with a date is ignored."""
    return min(int(header[:9]) * 1_000, LONGEST_PAUSE_MS) if header and header.isascii() and header.isdigit() else 0


def _without_address(error: requests.RequestException) -> str:
    """Name an error and its cause; their texts would repeat the address."""
    cause = getattr(error.args[0], "reason", None) if error.args else None
    return type(error).__name__ if cause is None else f"{type(error).__name__} ({type(cause).__name__})"
