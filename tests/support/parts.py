"""The check whether the embedded broker can run on this machine."""

import pytest

from streaming.embedded import EmbeddedBrokerError
from streaming.embedded.jars import broker_class_path
from streaming.embedded.java import JavaMissingError, java_command


def skip_without_broker() -> None:
    """Skip the test if the broker cannot run: in a wheel without `make setup`, or on a machine without Java."""
    try:
        java_command()
        broker_class_path()
    except (EmbeddedBrokerError, JavaMissingError) as missing:
        pytest.skip(str(missing))
