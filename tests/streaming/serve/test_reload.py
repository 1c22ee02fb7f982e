"""A `serve` that reads its configuration again: what it has seen stays, and an error changes nothing."""

import json

import pytest

from streaming.config.settings import ConfigError, load
from streaming.serve import server
from streaming.serve.server import Service


@pytest.fixture
def config(tmp_path, peer):
    (tmp_path / "url").write_text(peer.url)
    path = tmp_path / "monitor.toml"
    path.write_text(
        f"""store = {{url = "sqlite:///{tmp_path}/monitor.db"}}
quality = {{enabled = false}}
[serve]
monitor_stalled_ms = 15000
[[notify]]
kind = "webhook"
url_file = {json.dumps(str(tmp_path / "url"))}
"""
    )
    return path


@pytest.fixture
def service(store, config):
    started = Service(load(config), store, config)
    started.start()
    yield started
    started.stop()


def test_what_was_seen_of_every_run_stays(service, config):
    """With a reload every ten seconds `monitor-stalled` was never sent."""
    health = service._health
    config.write_text(config.read_text().replace("15000", "7000"))
    service.reload()
    assert service._threads[0]._health is health
    assert health.monitor_stalled_ms == 7_000


def test_a_secret_that_cannot_be_read_changes_nothing(service, tmp_path, monkeypatch):
    """It was read twice, the second time when the threads had ended."""
    reads = []
    original = server.receivers_of

    def vanishing(settings):
        reads.append(original(settings))
        (tmp_path / "url").unlink()
        return reads[-1]

    monkeypatch.setattr(server, "receivers_of", vanishing)
    service.reload()
    assert len(reads) == 1
    monkeypatch.undo()
    threads = service._threads
    with pytest.raises(ConfigError):
        service.reload()
    assert service._threads is threads
    assert all(thread.is_alive() for thread in threads)
