"""One running broker for the tests that do not break it."""

import pytest

from streaming.embedded import EmbeddedBrokerError, EmbeddedCluster
from streaming.embedded.jars import broker_class_path
from streaming.embedded.java import JavaMissingError, java_command


@pytest.fixture(scope="session")
def broker_parts():
    """Skip where the broker cannot run: a wheel without `make setup`, a machine without Java."""
    try:
        java_command()
        broker_class_path()
    except (EmbeddedBrokerError, JavaMissingError) as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def broker(broker_parts):
    with EmbeddedCluster() as cluster:
        yield cluster
