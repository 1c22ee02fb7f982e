"""What the embedded broker needs of a machine."""

import pytest

from streaming.embedded import EmbeddedBrokerError
from streaming.embedded.jars import broker_class_path
from streaming.embedded.java import JavaMissingError, java_command


def skip_without_broker() -> None:
    """Skip where the broker cannot run: a wheel without `make setup`, a machine without Java."""
    try:
        java_command()
        broker_class_path()
    except (EmbeddedBrokerError, JavaMissingError) as missing:
        pytest.skip(str(missing))
