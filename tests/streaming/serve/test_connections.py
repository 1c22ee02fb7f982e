"""Who only occupies connections stops neither alerts nor other readers. Real sockets, a real `serve`."""

import http.client
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import quote, urlsplit

import pytest
import requests

from streaming.config.settings import Settings
from streaming.serve import connections
from streaming.store import Store
from tests.streaming.serve.conftest import running
from tests.streaming.serve.test_command import Served, start
from tests.streaming.serve.test_guard import self_signed
from tests.support.outputs import CLUSTER, finding, progress, report, view
from tests.support.waiting import PATIENCE_S

FEW_FILES = 256  # what a shell on some systems gives
IDLE = 300  # more than FEW_FILES


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname, parts.port


def connect(url: str, sent: bytes = b"") -> socket.socket:
    opened = socket.create_connection(address(url), timeout=PATIENCE_S)
    opened.sendall(sent)
    return opened


@contextmanager
def dripping(url: str, number: int, head: bytes) -> Iterator[None]:
    """Keep so many connections busy with a byte now and then, and open another for each that is closed."""
    stop = threading.Event()

    def drip() -> None:
        opened = [connect(url, head) for _ in range(number)]
        while not stop.wait(0.2):
            for index, one in enumerate(opened):
                try:
                    one.sendall(b"x")
                except OSError:
                    one.close()
                    opened[index] = connect(url, head)
        for one in opened:
            one.close()

    thread = threading.Thread(target=drip)
    thread.start()
    yield
    stop.set()
    thread.join()


@pytest.fixture(params=["http", "https"])
def crowded(request, tmp_path, peer) -> Iterator[tuple[Served, Store]]:
    """`serve` with few file descriptors and an alert receiver."""
    config = tmp_path / "monitor.toml"
    tls = self_signed(tmp_path) if request.param == "https" else {}
    keys = "".join(f', {name} = "{path}"' for name, path in tls.items())
    config.write_text(f"""
cluster = "{CLUSTER}"
store.url = "sqlite:///{tmp_path}/monitor.db"
serve = {{port = 0{keys}}}
quality.enabled = false
[[notify]]
kind = "webhook"
url = "{peer.url}"
""")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, limits[1]))  # the child inherits it
    try:
        process = start(config)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    try:
        yield Served(process), store
    finally:
        store.close()
        process.kill()
        process.communicate()


def apply(store: Store, batch_id: int, *outputs) -> None:
    settings = Settings(cluster=CLUSTER)
    store.apply_batch(checkpoint_id="c", batch_id=batch_id, outputs=outputs, settings=settings)


def healthy_s(url: str) -> float:
    """How long a well-behaved client waits."""
    began = time.monotonic()
    answer = requests.get(f"{url}/healthz", verify=False, timeout=60)  # noqa: S501 - a certificate of our own
    assert answer.json() == {"healthy": True}
    return time.monotonic() - began


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_alerts_go_out_and_others_are_answered_whatever_occupies_the_connections(crowded, peer):
    """Half-open TLS handshakes or idle connections, half heads, half bodies, each more than there are descriptors.

    If nobody had to make room, a client would wait until the oldest connections run out of time: at least `HEAD_S`.
    """
    served, store = crowded
    url = served.url
    heads = {
        "idle": b"",
        "half heads": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        "half bodies": b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n",
        "half TLS records": b"\x16\x03\x01\x02\x00",
    }
    for number, (name, head) in enumerate(heads.items()):
        with ExitStack() as stack:
            stack.enter_context(dripping(url, 50, head))
            for _ in range(IDLE):
                stack.enter_context(connect(url, head))
            apply(store, number, report(name, finding(name), view=view(name)), progress())
            peer.wait_for(lambda peer, name=name: name in [body["group"] for body in peer.bodies])
            assert healthy_s(url) < connections.HEAD_S, name


def ended_after_s(opened: socket.socket) -> float:
    began = time.monotonic()
    opened.settimeout(20)
    while opened.recv(65_536):
        pass
    return time.monotonic() - began


@pytest.fixture
def impatient(monkeypatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.5)
    monkeypatch.setattr(connections, "ANSWER_S", 1.5)


def test_what_is_no_http_does_not_fill_the_log(client, caplog):
    with connect(client.base, b"nonsense\r\n\r\n") as opened:
        assert b" 400 " in opened.recv(65_536)
    assert caplog.text == ""


@pytest.mark.usefixtures("impatient")
class TestTimes:
    @pytest.mark.parametrize("head", [b"", b"GET /healthz HTTP/1.1\r\nHost: loc", b"nonsense"])
    def test_a_head_that_does_not_come_ends_the_connection(self, client, head):
        with connect(client.base, head) as opened:
            assert ended_after_s(opened) < 3

    @pytest.mark.parametrize(
        "sent",
        [
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
            b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n",
            b"POST /-/reload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFF\r\n",
        ],
        ids=["head", "body", "chunk"],
    )
    def test_a_request_that_comes_byte_by_byte_is_cut_off(self, client, sent):
        with connect(client.base, sent) as opened:
            began = time.monotonic()
            while time.monotonic() - began < 10:
                try:
                    opened.sendall(b"x")
                except OSError:
                    break
                time.sleep(0.05)
            assert time.monotonic() - began < 5

    def test_a_half_open_tls_handshake_ends(self, store, settings, tmp_path):
        tls = {"serve": self_signed(tmp_path)}
        with (
            running(store, Settings.model_validate(settings.model_dump() | tls)) as base,
            connect(base, b"\x16\x03\x01\x02\x00") as opened,
        ):
            assert ended_after_s(opened) < 3

    @pytest.mark.parametrize("scheme", ["http", "https"])
    def test_an_answer_that_nobody_takes_ends(self, apply, store, settings, tmp_path, scheme):
        """The kernel's buffers take some MB; the rest stays with us until the time is over."""
        apply(*(report(f"g{n}", view=view(f"g{n}", members=100)) for n in range(500)))  # 20 MB
        tls = {"serve": self_signed(tmp_path)} if scheme == "https" else {}
        with running(store, Settings.model_validate(settings.model_dump() | tls)) as base:
            opened = connect(base)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 262_144)  # with 4 kB reading the rest takes minutes
            if tls:
                context = ssl.create_default_context(cafile=tmp_path / "cert")
                opened = context.wrap_socket(opened, server_hostname="127.0.0.1")
            with opened:
                opened.sendall(b"GET /api/v1/groups HTTP/1.1\r\nHost: localhost\r\n\r\n")
                time.sleep(3)  # all that it may take, and more
                assert taken(opened) < 10_000_000

    def test_a_connection_that_goes_on_asking_is_kept(self, client):
        asking = http.client.HTTPConnection(*address(client.base), timeout=PATIENCE_S)
        ports = set()
        for _ in range(20):  # longer than an answer may take
            asking.request("GET", "/healthz")
            ports.add(asking.sock.getsockname()[1])
            assert asking.getresponse().read() == b'{"healthy": true}'
            time.sleep(0.1)
        asking.close()
        assert len(ports) == 1


def taken(opened: socket.socket) -> int:
    """How much comes until the connection ends."""
    total = 0
    opened.settimeout(20)
    with suppress(ConnectionError, ssl.SSLError):
        while data := opened.recv(1_000_000):
            total += len(data)
    return total


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * 300_000,
        b"GET / HTTP/1.1\r\nX: " + b"x" * 300_000,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000,
    ],
    ids=["path", "header", "headers"],
)
def test_an_oversized_request_head_is_refused(client, head):
    with connect(client.base, head) as opened:
        assert opened.recv(12) in (b"HTTP/1.1 400", b"")


def test_the_longest_group_id_that_kafka_takes_can_be_asked_for(apply, client):
    name = "é" * 16_383
    apply(report(name, view=view(name)))
    assert client.json(f"/api/v1/groups/{quote(name)}")["group"] == name


def test_there_is_room_for_deliveries_however_few_files_may_be_open(monkeypatch):
    def limited(files):
        monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
        return connections.most_connections()

    assert [limited(n) for n in (64, 256, 1_024, 1_000_000, resource.RLIM_INFINITY)] == [16, 128, 256, 256, 256]
