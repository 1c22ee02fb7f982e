"""The database gone for a while: `serve` says so, goes on, and nothing that was to be said is lost."""

import pytest
import requests

from streaming.config.settings import Settings
from streaming.serve.server import Service
from streaming.store import Store
from streaming.store.trouble import AWAY
from tests.streaming.serve.conftest import listening
from tests.support import databases
from tests.support.outputs import CLUSTER, START_MS, ended, finding, progress, report
from tests.support.waiting import PATIENCE_S, await_true


@pytest.fixture
def postgres():
    if reason := databases.missing():
        pytest.skip(reason)
    with databases.server() as running:
        yield running


def test_a_database_that_was_away_costs_nothing_but_time(postgres, peer):
    settings = Settings.model_validate(
        {"cluster": CLUSTER, "store": {"url": postgres.url, "retention_days": 3_650},
         "quality": {"enabled": False}, "notify": ({"kind": "webhook", "url": peer.url},)}
    )  # fmt: skip
    store, batches = Store.open(postgres.url), iter(range(100))

    def apply(*outputs):
        store.apply_batch(checkpoint_id="c", batch_id=next(batches), outputs=outputs, settings=settings)

    service = Service(settings, store, None)
    service.start()
    try:
        with listening(service, settings) as base:
            apply(progress(), report("orders", finding()))
            peer.wait_for(lambda peer: len(peer.bodies) == 1)
            peer.statuses = [503]
            apply(report("orders", finding(severity="page")))
            peer.wait_for(lambda peer: len(peer.bodies) == 2)
            postgres.stop()
            told = f"the database fails: {AWAY}"
            for path in ("/api/v1/groups", "/metrics", "/healthz", "/readyz"):
                answer = requests.get(base + path, timeout=PATIENCE_S)
                assert (answer.status_code, answer.json()) == (503, {"error": told})
            for path in ("/", "/groups/orders"):
                answer = requests.get(base + path, timeout=PATIENCE_S)
                assert (answer.status_code, told in answer.text) == (503, True)
                assert answer.headers["content-type"].startswith("text/html")
            failed = store.errors
            await_true(lambda: store.errors > failed)
            postgres.start()
            await_true(lambda: requests.get(f"{base}/healthz", timeout=PATIENCE_S).status_code == 200)
            apply(report("orders", ended(finding(severity="page"), START_MS + 9_000)))
            peer.wait_for(lambda peer: len(peer.bodies) >= 4)
            told = [body["transition"] for body in peer.bodies]
            assert list(dict.fromkeys(told)) == ["opened", "escalated", "closed"]
            assert told[-1] == "closed"
            assert store.errors > 0
    finally:
        service.stop()
        store.close()
