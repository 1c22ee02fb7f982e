"""confluent-kafka's consumers, for both group protocols, which report when the application last polled.

    from streaming.reporter.confluent import Consumer    # instead of: from confluent_kafka import Consumer

librdkafka does not show when it was last polled, and an object of confluent-kafka cannot be changed from outside, so
these are subclasses. They note the time around each `poll` and `consume` and change nothing else. The reporter's thread
reads only `_Polls`, never the consumer: the application may be closing the consumer, so no method of it is called.
"""

import logging
import math
import os
import time
import weakref
from collections.abc import Mapping
from typing import Any, Final

import confluent_kafka

from streaming.reporter.message import INTERVAL_S, TOPIC, message
from streaming.reporter.sender import SEND_TIMEOUT_S, ReportThread, start

__all__ = ["TOPIC", "Consumer", "DeserializingConsumer"]

log = logging.getLogger(__name__)

_CONNECTION_SETTINGS: Final = (
    "bootstrap.servers", "metadata.broker.list", "client.dns.lookup", "oauth_cb", "ssl_", "security.", "ssl.", "sasl.",
    "enable.ssl.", "enable.sasl.", "https.", "broker.address.", "socket.connection.", "socket.keepalive.",
)  # fmt: skip
"""Prefixes of the consumer's settings that its reporter's producer shares."""
_PRODUCER_SETTINGS: Final[dict[str, Any]] = {
    "acks": 1,
    "message.send.max.retries": 0,  # a report that is sent late has an age that is no longer true
    "message.timeout.ms": 5_000,
    "allow.auto.create.topics": False,  # a topic that is created automatically would lack LogAppendTime
    "queue.buffering.max.messages": 10,
    "linger.ms": 0,
    "partitioner": "murmur2_random",  # as in kafka-python: the reports of a group are in one partition
    "enable.metrics.push": False,
    "log_level": 0,  # librdkafka would write to standard error; our log line is enough
}
_DEFAULT_CLIENT_ID: Final = "rdkafka"
_DEFAULT_MAX_POLL_INTERVAL_MS: Final = 300_000
_DEFAULT_SESSION_TIMEOUT_MS: Final = 45_000


class _Polls:
    """The state that the application's thread writes and the reporter's thread reads: single attributes, no lock."""

    def __init__(self, consumer: confluent_kafka.Consumer, settings: dict[str, Any], interval_s: float) -> None:
        self._consumer = weakref.ref(consumer)
        self._settings = settings
        self._interval_s = interval_s
        self._pid = os.getpid()
        self._ended_s: float | None = None  # infinite during a poll, as in librdkafka
        self._ask_s = 0.0
        self._joined = False
        self._member_id = ""
        self.subscribed = False
        self.closed = False

    def begin(self, timeout: float | None) -> None:
        """Note that a poll begins. For librdkafka a poll that waits is never too long."""
        self._ended_s = time.monotonic() if timeout == 0 else math.inf

    def end(self) -> None:
        """Note that a poll has ended and, once per interval, the member id."""
        now_s = self._ended_s = time.monotonic()
        if self._joined and now_s < self._ask_s:
            return
        self._ask_s = now_s + self._interval_s
        consumer = self._consumer()
        # In a forked child librdkafka's threads are gone, and `memberid` would wait for ever.
        if consumer is None or self.closed or os.getpid() != self._pid:
            return
        try:
            current = consumer.memberid() or ""
        except Exception as error:  # noqa: BLE001 # closed from within a callback
            log.debug("no member id: %s", error)
            return
        self._joined = bool(current)
        # The client clears its id when it leaves because of its poll interval: the moment the report is needed most.
        self._member_id = current or self._member_id

    def is_open(self) -> bool:
        return not self.closed and self._consumer() is not None

    def report(self) -> dict[str, Any] | None:
        ended_s, settings = self._ended_s, self._settings
        # A consumer that unsubscribed has left on purpose and need not poll.
        if ended_s is None or not self._member_id or not self.subscribed or self.closed:
            return None
        kip_848 = str(settings.get("group.protocol", "classic")).lower() == "consumer"
        session_timeout_ms = int(settings.get("session.timeout.ms", _DEFAULT_SESSION_TIMEOUT_MS))
        return message(
            group=settings["group.id"],
            member_id=self._member_id,
            instance_id=settings.get("group.instance.id"),
            client_id=settings.get("client.id", _DEFAULT_CLIENT_ID),
            poll_age_ms=0 if ended_s == math.inf else max(0, round((time.monotonic() - ended_s) * 1000)),
            max_poll_interval_ms=int(settings.get("max.poll.interval.ms", _DEFAULT_MAX_POLL_INTERVAL_MS)),
            session_timeout_ms=None if kip_848 else session_timeout_ms,
            heartbeat_age_ms=None,
            software=f"confluent-kafka {confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}",
        )

    def connect(self) -> "_Outlet":
        return _Outlet(_producer_settings(self._settings))


class Consumer(confluent_kafka.Consumer):  # type: ignore[misc] # without types
    """`confluent_kafka.Consumer`, which reports its polls over its own connection settings, with its own rights."""

    report_topic = TOPIC
    report_interval_s = INTERVAL_S

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        given = args[0] if args and isinstance(args[0], Mapping) else {}
        self._polls = _Polls(self, {**given, **kwargs}, self.report_interval_s)
        self._reports = start(ReportThread(self._polls, self._polls.connect, self.report_topic, self.report_interval_s))

    def poll(self, *args: Any, **kwargs: Any) -> Any:
        """As `confluent_kafka.Consumer`."""
        self._polls.begin(args[0] if args else kwargs.get("timeout"))
        try:
            return super().poll(*args, **kwargs)
        finally:
            self._polls.end()

    def consume(self, *args: Any, **kwargs: Any) -> Any:
        """As `confluent_kafka.Consumer`."""
        self._polls.begin(args[1] if len(args) > 1 else kwargs.get("timeout"))
        try:
            return super().consume(*args, **kwargs)
        finally:
            self._polls.end()

    def subscribe(self, *args: Any, **kwargs: Any) -> None:
        """As `confluent_kafka.Consumer`."""
        super().subscribe(*args, **kwargs)
        self._polls.subscribed = True

    def unsubscribe(self, *args: Any, **kwargs: Any) -> None:
        """As `confluent_kafka.Consumer`."""
        self._polls.subscribed = False
        super().unsubscribe(*args, **kwargs)

    def close(self, *args: Any, **kwargs: Any) -> Any:
        """As `confluent_kafka.Consumer`. Reports end now, because a consumer that closes need not poll."""
        self._polls.closed = True
        return super().close(*args, **kwargs)

    def __exit__(self, *args: object) -> Any:
        self._polls.closed = True  # the base class does not call `close` here
        return super().__exit__(*args)


class DeserializingConsumer(confluent_kafka.DeserializingConsumer, Consumer):  # type: ignore[misc] # without types
    """`confluent_kafka.DeserializingConsumer`, which reports its polls."""


class _Outlet:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = confluent_kafka.Producer(settings)

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        outcomes: list[Any] = []
        self._producer.produce(topic, value, key=key, on_delivery=lambda error, _: outcomes.append(error))
        end_s = time.monotonic() + SEND_TIMEOUT_S
        while not outcomes:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"no answer within {SEND_TIMEOUT_S} s")
            self._producer.poll(left_s)
        if outcomes[0] is not None:
            raise confluent_kafka.KafkaException(outcomes[0])

    def close(self) -> None:
        self._producer.purge()
        self._producer.poll(0)


def _producer_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the consumer's connection settings, and those of a small producer."""
    shared = {name: value for name, value in settings.items() if name.startswith(_CONNECTION_SETTINGS)}
    client_id = settings.get("client.id", _DEFAULT_CLIENT_ID)
    return {**shared, **_PRODUCER_SETTINGS, "client.id": f"group-monitor-reporter-{client_id}"}
