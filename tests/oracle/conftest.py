"""The driver that all tests of a process play their lives on."""

import pytest

from tests.oracle.driver import Driver, why_not


@pytest.fixture(scope="session")
def driver():
    if missing := why_not():
        pytest.skip(missing)
    with Driver() as running:
        yield running
