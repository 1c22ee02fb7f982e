"""The reporter for kafka-python: a thread sends a consumer's poll age once a second. No broker can see that age.

A kafka-python consumer that stopped polling sends the same LeaveGroup request as one that is closed. The report tells
them apart. It contains ages, which do not depend on a clock. Its instant is the topic's append time, so create the
topic with ``message.timestamp.type=LogAppendTime``. The thread reads the consumer's attributes; it calls no method of
the consumer and takes none of its locks.
"""

import threading
import time
import weakref
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer
from kafka.version import __version__ as kafka_python_version

from streaming.reporter.message import INTERVAL_S, TOPIC, message
from streaming.reporter.sender import SEND_TIMEOUT_S, ReportThread, start

__all__ = ["TOPIC", "PollReport", "report_polls"]

_CONNECTION_SETTINGS: Final = (
    "bootstrap_servers", "client_dns_lookup", "security_protocol", "ssl_context", "ssl_check_hostname", "ssl_cafile",
    "ssl_certfile", "ssl_keyfile", "ssl_crlfile", "ssl_password", "ssl_ciphers", "sasl_mechanism",
    "sasl_plain_username", "sasl_plain_password", "sasl_kerberos_name", "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name", "sasl_oauth_token_provider", "proxy_url", "socks5_proxy",
)  # fmt: skip
_PRODUCER_SETTINGS: Final = {
    "acks": 1,
    "enable_idempotence": False,  # needs one right less
    "retries": 0,  # a report that is sent late has an age that is no longer true
    "allow_auto_create_topics": False,  # a topic that is created automatically would lack LogAppendTime
    "max_block_ms": 2_000,
    "retry_backoff_ms": 1_000,  # kafka-python logs each request for a topic that does not exist
    "request_timeout_ms": 5_000,
    "delivery_timeout_ms": 5_500,
    "bootstrap_timeout_ms": 5_000,
    "metrics_enabled": False,
}


def report_polls(consumer: KafkaConsumer, *, topic: str = TOPIC, interval_s: float = INTERVAL_S) -> threading.Thread:
    """Start to report on `consumer`; stop when the consumer is closed or garbage-collected.

    Reports use the consumer's brokers and security settings. Its user needs the right to write to `topic`.
    """
    subject = _Subject(consumer)
    return start(ReportThread(subject, subject.connect, topic, interval_s))


class PollReport:
    """Makes reports from a consumer's private state, and remembers the last member id that was not empty.

    The client clears its member id when it leaves because of its poll interval: the moment the report is needed most.
    """

    def __init__(self) -> None:
        self._member_id = ""

    def of(self, consumer: KafkaConsumer) -> dict[str, Any] | None:
        """Return the report; None if the consumer has never joined, has never polled, or has unsubscribed."""
        coordinator, config = consumer._coordinator, consumer.config  # noqa: SLF001 # no public way
        self._member_id = coordinator._generation.member_id or self._member_id  # noqa: SLF001
        now_s, heartbeat = time.monotonic(), coordinator.heartbeat
        poll_age_ms = _age_ms(now_s, heartbeat.last_poll)
        # A consumer that unsubscribed has left on purpose and need not poll.
        if not self._member_id or poll_age_ms is None or not consumer._subscription.subscription:  # noqa: SLF001
            return None
        return message(
            group=config["group_id"],
            member_id=self._member_id,
            instance_id=config.get("group_instance_id"),
            client_id=config["client_id"],
            poll_age_ms=poll_age_ms,
            max_poll_interval_ms=config["max_poll_interval_ms"],
            session_timeout_ms=config["session_timeout_ms"],
            heartbeat_age_ms=_age_ms(now_s, heartbeat.last_receive),
            software=f"kafka-python {kafka_python_version}",
        )


class _Subject:
    """A weak reference to the consumer: if the application drops the consumer, its reports end."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = weakref.ref(consumer)
        self._report = PollReport()

    def is_open(self) -> bool:
        consumer = self._consumer()
        return consumer is not None and not consumer._closed  # noqa: SLF001

    def report(self) -> dict[str, Any] | None:
        consumer = self._consumer()
        return None if consumer is None else self._report.of(consumer)

    def connect(self) -> "_Outlet":
        consumer = self._consumer()
        if consumer is None:
            raise ReferenceError("the consumer is gone")
        settings = _producer_settings(consumer)
        del consumer  # not to be held while waiting for the broker
        return _Outlet(settings)


class _Outlet:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = KafkaProducer(**settings)
        # That hook would delay the exit of the interpreter, and that of a forked child, by up to two seconds.
        getattr(self._producer, "_unregister_cleanup", lambda: None)()

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        self._producer.send(topic, value, key=key).get(timeout=SEND_TIMEOUT_S)

    def close(self) -> None:
        self._producer.close(timeout=1)


def _producer_settings(consumer: KafkaConsumer) -> dict[str, Any]:
    """Return the consumer's connection settings, and those of a small producer."""
    config = consumer.config
    settings = {name: config[name] for name in _CONNECTION_SETTINGS if name in config}
    settings |= {**_PRODUCER_SETTINGS, "client_id": f"group-monitor-reporter-{config['client_id']}"}
    return {name: value for name, value in settings.items() if name in KafkaProducer.DEFAULT_CONFIG}


def _age_ms(now_s: float, then_s: float) -> int | None:
    """Return how long ago a monotonic instant was; None for kafka-python's "never", minus infinity."""
    return None if then_s == float("-inf") else max(0, round((now_s - then_s) * 1000))
