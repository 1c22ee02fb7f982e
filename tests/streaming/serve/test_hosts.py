"""A stranger's page can neither read through a name of its own nor change anything."""

import pytest
import requests
from starlette.testclient import TestClient

from streaming.config.settings import Settings
from streaming.serve.app import create_app
from streaming.serve.health import Health
from tests.streaming.serve.conftest import listening, running
from tests.support.waiting import PATIENCE_S

EXTERNAL = {"public_url": "https://monitor.example/", "allowed_hosts": ("serve", "Monitor.Svc")}
PATHS = ("/", "/metrics", "/healthz", "/api/v1/groups", "/groups/x", "/nothing")


@pytest.fixture
def base(store, settings):
    with running(store, Settings.model_validate(settings.model_dump() | {"serve": EXTERNAL})) as address:
        yield address


def status(base, host, path="/healthz", method="GET", **headers):
    return requests.request(method, base + path, headers={"Host": host, **headers}, timeout=PATIENCE_S).status_code


@pytest.mark.parametrize("path", PATHS)
def test_a_name_that_is_not_ours_is_refused_whatever_it_asks_for(base, path):
    answer = requests.get(base + path, headers={"Host": "rebound.evil.example:8844"}, timeout=PATIENCE_S)
    assert answer.status_code == 421
    assert "allowed_hosts" in answer.json()["error"]
    assert answer.headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:1", "localhost.", "127.0.0.1", "127.0.0.1:8844", "[::1]:8844", "10.1.2.3", "[fe80::1]",
     "monitor.example", "monitor.example:443", "serve:8844", "monitor.svc"],
)  # fmt: skip
def test_our_names_and_any_address_are_answered(base, host):
    assert status(base, host) == 200


@pytest.mark.parametrize(
    "host",
    ["evil", "localhost.evil.example", "evil.localhost", "127.0.0.1.evil.example", "monitor.example.evil", "[::1", "@",
     "monitor.example@evil", "evil/monitor.example", "0x7f.1", "serve evil", "a" * 5_000],
)  # fmt: skip
def test_what_only_looks_like_one_of_ours_is_refused(base, host):
    assert status(base, host) == 421


def test_a_client_of_http_1_0_may_leave_the_name_out(base):
    import socket

    host, port = base.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as asked:
        asked.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert asked.recv(12).endswith(b" 200")


@pytest.fixture
def reloads(store, settings):
    """The address of a server, and the list of what reloaded it."""
    done: list[int] = []
    changed = Settings.model_validate(settings.model_dump() | {"serve": EXTERNAL})
    app = create_app(store, changed, Health(monitor_stalled_ms=1), lambda: done.append(1))
    with listening(app, changed) as address:
        yield address, done


FOREIGN = (
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1"},  # another port is another origin
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": ""},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Host": "evil.example", "Origin": "http://evil.example"},
)


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_page_of_another_origin_changes_nothing(reloads, headers):
    base, done = reloads
    assert requests.post(f"{base}/-/reload", headers=headers, timeout=PATIENCE_S).status_code in (403, 421)
    assert done == []


def test_our_own_pages_and_programs_may_change_what_there_is_to_change(reloads):
    base, done = reloads
    for headers in ({}, {"Origin": base}, {"Origin": "https://monitor.example"}, {"Sec-Fetch-Site": "same-origin"}):
        assert requests.post(f"{base}/-/reload", headers=headers, timeout=PATIENCE_S).json() == {"reloaded": True}
    assert len(done) == 4


@pytest.mark.parametrize(
    ("peer", "status"),
    [("127.0.0.1", 200), ("::1", 200), ("::ffff:127.0.0.1", 200), ("10.0.0.9", 403), ("::ffff:10.0.0.9", 403)],
)
def test_without_a_token_only_this_machine_may_ask_for_a_reload(store, settings, peer, status):
    done: list[int] = []
    app = create_app(store, settings, Health(1), lambda: done.append(1))
    asked = TestClient(app, base_url="http://localhost", client=(peer, 1)).post("/-/reload")
    assert asked.status_code == status
    assert len(done) == (status == 200)


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For"])
def test_a_proxy_on_this_machine_passes_on_no_reload_of_others(store, settings, header):
    app = create_app(store, settings, Health(1), lambda: pytest.fail("reloaded"))
    client = TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1))
    assert client.post("/-/reload", headers={header: "for=10.0.0.9"}).status_code == 403
