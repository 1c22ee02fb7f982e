"""What a test needs of the machine. Without it, the test is skipped, with the reason."""

import pytest

from streaming.embedded import EmbeddedBrokerError
from streaming.embedded.jars import broker_class_path


def need_broker() -> None:
    """Skip the test if the embedded broker cannot run here."""
    try:
        broker_class_path()
    except EmbeddedBrokerError as missing:
        pytest.skip(str(missing))
