"""What several folders of tests share: both kinds of database, and a broker with logins."""

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine

from tests.support import databases
from tests.support.parts import skip_without_broker
from tests.support.secured import AUTHORIZER, secured_broker


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    if reason := databases.missing():
        pytest.skip(reason)
    with databases.postgresql() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/monitor.db"
    address = request.getfixturevalue("postgres_url")
    databases.empty(create_engine(address))
    return address


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker that lets everybody do what no ACL forbids."""
    skip_without_broker()
    properties = {**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    with secured_broker(tmp_path_factory.mktemp("secured"), **properties) as running:
        yield running
