"""kafka-python: a consumer's poll age, sent once a second from a thread of its own: the one thing that no broker sees.

On the wire the leave of a kafka-python consumer that stopped polling equals the one of a consumer that is closed.
The report tells them apart. It carries ages, which need no clock; its instant is the topic's append time, so create
the topic with ``message.timestamp.type=LogAppendTime``. No method of the consumer is called and no lock of it taken:
its own attributes say when it polled.
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
    "enable_idempotence": False,  # one right fewer is needed
    "retries": 0,  # a report that comes late tells an age that is no longer true
    "allow_auto_create_topics": False,  # a topic made by the way would lack LogAppendTime
    "max_block_ms": 2_000,
    "retry_backoff_ms": 1_000,  # kafka-python logs every look for a topic that is not there
    "request_timeout_ms": 5_000,
    "delivery_timeout_ms": 5_500,
    "bootstrap_timeout_ms": 5_000,
    "metrics_enabled": False,
}


def report_polls(consumer: KafkaConsumer, *, topic: str = TOPIC, interval_s: float = INTERVAL_S) -> threading.Thread:
    """Begin to report on `consumer`; it ends when the consumer is closed or garbage-collected.

    The connection is the consumer's: same brokers, same security; it needs the right to write to `topic`.
    """
    subject = _Subject(consumer)
    return start(ReportThread(subject, subject.connect, topic, interval_s))


class PollReport:
    """Reads a consumer's private state into one report at a time; remembers the last member id that was not empty.

    The client drops its member id when it leaves because of its poll interval, just when the report matters most.
    """

    def __init__(self) -> None:
        self._member_id = ""

    def of(self, consumer: KafkaConsumer) -> dict[str, Any] | None:
        """Return the report; None where there is nothing to say: never joined, never polled, or unsubscribed."""
        coordinator, config = consumer._coordinator, consumer.config  # noqa: SLF001 # no public way
        self._member_id = coordinator._generation.member_id or self._member_id  # noqa: SLF001
        now_s, heartbeat = time.monotonic(), coordinator.heartbeat
        poll_age_ms = _age_ms(now_s, heartbeat.last_poll)
        # Who unsubscribed has left on purpose, and need not poll.
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
    """Holds the consumer weakly: who forgets a consumer ends its reports."""

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
        # It would hold up the exit of the interpreter, and that of a forked child, for up to two seconds.
        getattr(self._producer, "_unregister_cleanup", lambda: None)()

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        self._producer.send(topic, value, key=key).get(timeout=SEND_TIMEOUT_S)

    def close(self) -> None:
        self._producer.close(timeout=1)


def _producer_settings(consumer: KafkaConsumer) -> dict[str, Any]:
    """Return the consumer's own connection settings, and those of a producer that stays small."""
    config = consumer.config
    settings = {name: config[name] for name in _CONNECTION_SETTINGS if name in config}
    settings |= {**_PRODUCER_SETTINGS, "client_id": f"group-monitor-reporter-{config['client_id']}"}
    return {name: value for name, value in settings.items() if name in KafkaProducer.DEFAULT_CONFIG}


def _age_ms(now_s: float, then_s: float) -> int | None:
    """Return how long ago a monotonic instant was; None for kafka-python's "never", minus infinity."""
    return None if then_s == float("-inf") else max(0, round((now_s - then_s) * 1000))
