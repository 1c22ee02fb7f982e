"""A real Alertmanager on a free port, where Debian's `prometheus-alertmanager` is installed."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

PROGRAM = "prometheus-alertmanager"
_CONFIG = """
route: {receiver: hook, group_by: [%s], group_wait: %s, group_interval: 1s}
receivers: [{name: hook, webhook_configs: [{url: "%s", send_resolved: true}]}]
"""


def missing() -> str | None:
    """Say what is missing, if anything."""
    return None if shutil.which(PROGRAM) else f"{PROGRAM} is not on PATH"


class Running:
    """Asks an Alertmanager what it holds."""

    def __init__(self, url: str) -> None:
        self.url = url

    def alerts(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Active alerts by (group, severity)."""
        answer = requests.get(f"{self.url}/api/v2/alerts?active=true", timeout=5)
        answer.raise_for_status()
        return {(alert["labels"].get("group", ""), alert["labels"]["severity"]): alert for alert in answer.json()}


@contextmanager
def alertmanager(
    folder: Path, hook_url: str, group_by: str = "alertname, cluster, group", group_wait: str = "100ms"
) -> Iterator[Running]:
    """Start one that notifies `hook_url`; it is gone afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alertmanager.yml").write_text(_CONFIG % (group_by, group_wait, hook_url))
    options = [f"--config.file={folder}/alertmanager.yml", f"--storage.path={folder}", "--cluster.listen-address="]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, *options, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(process, url)
        yield Running(url)
    finally:
        process.terminate()
        process.wait(20)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    for _ in range(200):
        assert process.poll() is None, "Alertmanager ended at once"
        try:
            if requests.get(f"{url}/-/ready", timeout=1).ok:
                return
        except requests.ConnectionError:
            time.sleep(0.05)  # it offers no event to wait for
    raise TimeoutError(url)
