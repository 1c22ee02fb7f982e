"""The reporter: a consumer application uses it to report to the monitor when it last polled.

    from streaming.reporter import report_polls            # kafka-python
    report_polls(consumer)

    from streaming.reporter.confluent import Consumer      # confluent-kafka: instead of its own

It needs no other part of the monitor, and no Kafka client except the application's own.
`pip install ./streaming/reporter` in a checkout installs it alone.
"""

import logging
import threading
from typing import TYPE_CHECKING

from streaming.reporter.message import INTERVAL_S, TOPIC

if TYPE_CHECKING:
    from kafka import KafkaConsumer

__all__ = ["TOPIC", "report_polls"]

log = logging.getLogger(__name__)


def report_polls(consumer: "KafkaConsumer", *, topic: str = TOPIC, interval_s: float = INTERVAL_S) -> threading.Thread:
    """Start to report on a consumer of kafka-python; stop when the consumer is closed or garbage-collected.

    Reports use the consumer's brokers and security settings. Its user needs the right to write to `topic`.
    """
    try:
        from streaming.reporter import reporter  # noqa: PLC0415 # an application need not have kafka-python

        if hasattr(consumer, "_coordinator"):
            return reporter.report_polls(consumer, topic=topic, interval_s=interval_s)
    except Exception as error:  # noqa: BLE001 # the application goes on without reports
        log.warning("no poll reports: %s: %s", type(error).__name__, error)
    else:
        log.warning("no poll reports of a %s: for confluent-kafka, import streaming.reporter.confluent", type(consumer))
    return threading.Thread(name="group-monitor-reporter", daemon=True)
