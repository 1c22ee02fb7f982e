"""One delivery worker per receiver, each on its own thread, so that a receiver that hangs delays no other."""

import json
import threading
from collections.abc import Iterator, Sequence

import structlog
from sqlalchemy.exc import SQLAlchemyError
from tenacity import RetryCallState, Retrying, wait_random_exponential

from streaming.serve.leader import Leader
from streaming.serve.notify.base import LONGEST_PAUSE_MS, Answer, Delivered, Payload, Receiver, Rejected, Retry
from streaming.serve.notify.message import MessageEnricher
from streaming.store import Store
from streaming.store.outbox import Delivery
from streaming.store.store import wall_ms
from streaming.store.trouble import as_fields

POLL_S = 0.5
REMIND_MS = 60_000
DUE_AT_ONCE = 500
TRIED_ONE_BY_ONE = 10
"""A receiver that rejects a request with many reminders, and the first so many of them alone, rejects them all."""
WAIT = wait_random_exponential(multiplier=1, min=0.5, max=300)  # full jitter, so that retries are spread out
GIVE_UP_AFTER_MS = 900_000
"""How long a message is tried again after its first rejection: a missing route or a wrong token can be put right."""


class DeliveryWorker(threading.Thread):
    """The thread that delivers what is due to one receiver, while this `serve` leads, until `stop` is set."""

    def __init__(
        self, store: Store, receiver: Receiver, enricher: MessageEnricher, leader: Leader, stop: threading.Event
    ) -> None:
        super().__init__(name=f"delivery-{receiver.name}", daemon=True)
        self._store = store
        self._receiver = receiver
        self._enricher = enricher
        self._leader = leader
        self._stop_event = stop
        self._remind_ms = 0
        self._failures = 0
        self._paused_until_ms = 0
        self._rejected_ms: dict[int, int] = {}  # when each undelivered message was first rejected, by its id
        self._log = structlog.get_logger("delivery").bind(receiver=receiver.name)

    def run(self) -> None:
        """Deliver and remind until stopped. If the database does not answer for a while, the thread goes on."""
        while not self._stop_event.is_set():
            try:
                if self._may_send() and wall_ms() >= self._paused_until_ms:
                    self._deliver_due()
                    self._remind_when_due()
            except SQLAlchemyError as error:
                self._log.warning("the database failed", **as_fields(error))
            except Exception:  # noqa: BLE001 - see the message
                self._log.exception("unexpected error: delivery goes on")
            self._stop_event.wait(POLL_S)

    def _may_send(self) -> bool:
        """Tell whether to send on: after a stop or a loss of leadership, another worker sends the same messages."""
        return self._leader.leads() and not self._stop_event.is_set()

    def _deliver_due(self) -> None:
        """Deliver until nothing is due; after a `Retry` the receiver gets a pause before the next message."""
        if dismissed := self._store.outbox.dismiss_outdated(self._receiver.name):
            self._log.warning(
                "outdated messages are not sent: the newest message has the current state", messages=dismissed
            )
        while due := self._store.outbox.due(self._receiver.name, wall_ms(), DUE_AT_ONCE):
            for portion in portions(due, self._receiver.messages_at_once):
                if not self._may_send():
                    return
                self._store.outbox.attempt([message.id for message in portion])
                if not self._deliver(portion):
                    return

    def _deliver(self, messages: Sequence[Delivery]) -> bool:
        """Deliver messages in one request; return False if the receiver cannot accept any now."""
        match self._send([message.payload for message in messages]):
            case Delivered():
                self._failures = 0
                self._store.outbox.done([message.id for message in messages], wall_ms())
                for message in messages:
                    self._rejected_ms.pop(message.id, None)
            case Retry(reason, after_ms):
                self._failures += 1
                now_ms, longest_ms = wall_ms(), REMIND_MS if self._receiver.forgets else LONGEST_PAUSE_MS
                self._paused_until_ms = now_ms + min(longest_ms, max(after_ms, backoff_ms(self._failures)))
                next_ms = now_ms + max(after_ms, backoff_ms(messages[0].attempts + 1))
                self._store.outbox.failed([message.id for message in messages], reason, next_ms)
                self._log.warning("not delivered, will be retried", reason=reason, failures=self._failures)
                return False
            case Rejected() if len(messages) > 1:  # send each alone: one may be bad, the others not
                return all(self._may_send() and self._deliver([message]) for message in messages)
            case Rejected(reason):
                self._rejected(messages[0], reason)
        return True

    def _rejected(self, message: Delivery, reason: str) -> None:
        """Try a message again later, or give it up if it has been rejected for long enough."""
        now_ms = wall_ms()
        gives_up = now_ms - self._rejected_ms.setdefault(message.id, now_ms) >= GIVE_UP_AFTER_MS
        if gives_up:
            del self._rejected_ms[message.id]
        next_ms = None if gives_up else now_ms + backoff_ms(message.attempts + 1)
        self._store.outbox.failed([message.id], reason, next_ms)
        self._log.error("rejected", reason=reason, incident_id=message.incident_id, given_up=gives_up)

    def _send(self, payloads: Sequence[str]) -> Answer:
        try:
            return self._receiver.send([self._enricher.complete(json.loads(payload)) for payload in payloads])
        except SQLAlchemyError:
            raise
        except Exception as error:  # noqa: BLE001 - only this message fails; the delivery worker goes on
            self._log.exception("unexpected error in a receiver")
            return Rejected(f"{type(error).__name__} inside the monitor")

    def _remind_when_due(self) -> None:
        """Send the open incidents again every `REMIND_MS` if the receiver forgets them."""
        now_ms = wall_ms()
        if not self._receiver.forgets or now_ms < self._remind_ms:
            return
        self._remind_ms = now_ms + REMIND_MS
        firing, at_once = self._store.read.firing(self._receiver.severities), self._receiver.messages_at_once
        for start in range(0, len(firing), at_once):
            if not self._may_send() or not self._remind(firing[start : start + at_once]):
                return

    def _remind(self, payloads: Sequence[Payload]) -> bool:
        """Send open incidents again in one request; return False if the receiver cannot accept any now."""
        match self._send([json.dumps(payload) for payload in payloads]):
            case Retry(reason):
                self._log.warning("reminder not delivered", reason=reason)
                return False
            case Rejected() if len(payloads) > 1:
                return self._remind_one_by_one(payloads)
            case Rejected(reason):
                self._log_rejected(payloads, reason)
        return True

    def _remind_one_by_one(self, payloads: Sequence[Payload]) -> bool:
        """Send each alone: one may be bad, the others not. Return False if the receiver accepts none of the first few.

        It then rejects all of them, maybe because of a wrong token. To try them all would keep new messages waiting.
        """
        rejected: list[Payload] = []
        tried, reason = 0, ""
        for tried, payload in enumerate(payloads, start=1):
            if not self._may_send():
                return False
            match self._send([json.dumps(payload)]):
                case Retry(reason):
                    self._log.warning("reminder not delivered", reason=reason)
                    return False
                case Rejected(reason):
                    rejected.append(payload)
            if tried == len(rejected) == TRIED_ONE_BY_ONE:
                break
        self._log_rejected(rejected, reason)
        return len(rejected) < tried

    def _log_rejected(self, payloads: Sequence[Payload], reason: str) -> None:
        if payloads:
            ids = [payload["incident"]["incident_id"] for payload in payloads]
            self._log.warning("reminders rejected", reason=reason, incident_ids=ids)


def portions(due: Sequence[Delivery], messages_at_once: int) -> Iterator[Sequence[Delivery]]:
    """Divide messages into requests. One that was tried before goes alone: it may be what the receiver fails on."""
    new = [message for message in due if not message.attempts]
    for start in range(0, len(new), messages_at_once):
        yield new[start : start + messages_at_once]
    yield from ([message] for message in due if message.attempts)


def backoff_ms(attempts: int) -> int:
    """Return the pause after this many failed attempts: random, up to 1 s, 2 s, 4 s ... 5 min."""
    state = RetryCallState(Retrying(), None, (), {})
    state.attempt_number = min(attempts, 30)
    return int(WAIT(state) * 1_000)
