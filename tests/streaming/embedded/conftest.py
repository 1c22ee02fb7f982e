"""One running broker for the tests that do not break it."""

import pytest

from streaming.embedded import EmbeddedCluster
from tests.support.parts import skip_without_broker


@pytest.fixture(scope="session")
def broker_parts():
    """Skip where the broker cannot run: a wheel without `make setup`, a machine without Java."""
    skip_without_broker()


@pytest.fixture(scope="session")
def broker(broker_parts):
    with EmbeddedCluster() as cluster:
        yield cluster
