"""For an application that consumes with kafka-python: tell the monitor when it last polled.

    from streaming.reporter import report_polls
    report_polls(consumer)

Depends on nothing else of the monitor and on nothing but kafka-python; `pip install ./streaming/reporter` in a checkout
installs it alone.
"""

from streaming.reporter.reporter import TOPIC, report_polls

__all__ = ["TOPIC", "report_polls"]
