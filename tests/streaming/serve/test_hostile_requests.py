"""Whatever a request holds, on both databases: an answer that says what is wrong, never a failure inside."""

from collections.abc import Iterator
from itertools import product
from urllib.parse import quote

import pytest
from sqlalchemy import create_engine

from streaming.serve.openapi import OPENAPI
from streaming.store import Store
from tests.streaming.serve.conftest import Client, running
from tests.support import databases
from tests.support.outputs import finding, report, view
from tests.support.waiting import PATIENCE_S


@pytest.fixture(params=["sqlite", "postgresql"])
def either(request, settings) -> Iterator[tuple[Store, Client]]:
    """A store with one group and one incident, in either database, and its client."""
    url = settings.store.url
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
        databases.empty(create_engine(url))
    store = Store.open(url)
    outputs = [report("orders", finding(), view=view())]
    store.apply_batch(checkpoint_id="c", batch_id=0, outputs=outputs, settings=settings)
    with running(store, settings) as base:
        yield store, Client(base)
    store.close()


VALUES = (
    "\x00", "a\x00b", "\x01\x1b[2J", "\ud800", "\u202e", "\u2028", "'", "';--", '"', "%", "_", "*", "\\",
    "", " ", "-1", "0", "9" * 30, "1e9", "²", "٣", "NaN", "null", "true", "x" * 10_000,
)  # fmt: skip
RAW = ("%00", "%FF", "%ED%A0%80", "%C0%80", "%", "%zz", "%0d%0aX: y", "+", "%2e%2e%2f")
TEXTS = (*(quote(value.encode("utf-8", "surrogatepass"), safe="") for value in VALUES), *RAW)


def parameters() -> list[tuple[str, str]]:
    """Every path and query parameter that the API describes, and those of the pages."""
    described = [
        (path.replace("{group}", "orders"), parameter["name"])
        for path, about in OPENAPI["paths"].items()
        for parameter in about["get"]["parameters"]
        if parameter["in"] == "query"
    ]
    return [*described, ("/groups/orders", "cluster"), ("/groups/orders", "minutes"), ("/metrics/burrow", "cluster")]


def test_no_value_of_a_parameter_is_a_failure_inside(either):
    _, client = either
    asked = {}
    for (path, name), text in product(parameters(), TEXTS):
        asked[f"{path}?{name}={text}"] = client.session.get(f"{client.base}{path}?{name}={text}", timeout=PATIENCE_S)
    failed = {address: answer.text for address, answer in asked.items() if answer.status_code not in (200, 400, 404)}
    assert failed == {}
    assert len(asked) > 500


def test_no_part_of_a_path_is_a_failure_inside(either):
    _, client = either
    for text in TEXTS:
        for path in (f"/groups/{text}", f"/api/v1/groups/{text}", f"/{text}", f"/api/v1/{text}"):
            answer = client.session.get(client.base + path, timeout=PATIENCE_S)
            assert answer.status_code in (200, 400, 404), (path, answer.text)


def test_what_cannot_be_stored_as_it_is_is_found_by_its_true_name(either, settings):
    """PostgreSQL stores no NUL, nor takes one in a question."""
    store, client = either
    outputs = [report("o", cluster="a\x00b", view=view("o", cluster="a\x00b"))]
    store.apply_batch(checkpoint_id="c", batch_id=1, outputs=outputs, settings=settings)
    for cluster in ("a%00b", "a%EF%BF%BDb"):
        assert [found["group"] for found in client.json(f"/api/v1/groups?cluster={cluster}")] == ["o"]
