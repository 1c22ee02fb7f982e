"""A token, where one is configured: whoever has it reads, nobody else does."""

import base64
import subprocess

import pytest
import requests

from streaming.config.settings import Settings
from tests.streaming.serve.conftest import Client, running
from tests.support.waiting import PATIENCE_S

TOKEN = "s3cret-tøken"


@pytest.fixture
def guarded(store, settings):
    with running(store, Settings.model_validate(settings.model_dump() | {"serve": {"token": TOKEN}})) as base:
        yield base


def status(base, path, authorization=None):
    headers = {"Authorization": authorization.encode()} if authorization else {}
    return requests.get(base + path, headers=headers, timeout=PATIENCE_S).status_code


BASIC = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/groups", "/api/v1/openapi.json", "/groups/x", "/nothing"])
def test_nothing_is_read_without_the_token(guarded, path):
    assert status(guarded, path) == 401


@pytest.mark.parametrize(
    "given", ["Bearer wrong", "Bearer ", "Basic !!", "Basic eDp5", f"Digest {TOKEN}", TOKEN, "Basic " + "A" * 7_000]
)
def test_a_wrong_token_is_refused(guarded, given):
    assert status(guarded, "/api/v1/groups", given) == 401


@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Basic {BASIC}"])
def test_the_token_is_taken_as_bearer_and_as_password(guarded, given):
    assert status(guarded, "/api/v1/groups", given) == 200
    assert status(guarded, "/", given) == 200


def test_a_browser_is_told_to_ask_for_it(guarded):
    answer = requests.get(guarded, timeout=PATIENCE_S)
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    assert answer.headers["X-Frame-Options"] == "DENY"


def test_health_checks_need_no_token(guarded):
    assert (status(guarded, "/healthz"), status(guarded, "/readyz")) == (200, 503)


def self_signed(folder):
    """The `[serve]` keys of a certificate for 127.0.0.1, made here."""
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = {"tls_certfile": folder / "cert", "tls_keyfile": folder / "key"}
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names]
    made += ["-keyout", str(files["tls_keyfile"]), "-out", str(files["tls_certfile"])]
    subprocess.run(made, check=True, capture_output=True)
    return files


def test_it_speaks_tls(store, settings, tmp_path):
    tls = self_signed(tmp_path)
    with running(store, Settings.model_validate(settings.model_dump() | {"serve": tls})) as base:
        assert base.startswith("https://")
        assert requests.get(f"{base}/healthz", verify=f"{tmp_path}/cert", timeout=PATIENCE_S).json() == {
            "healthy": True
        }
        client = Client(base)
        with pytest.raises(requests.exceptions.SSLError):
            client.get("/healthz")
