"""A real Alertmanager on a free port, where Debian's `prometheus-alertmanager` is installed."""

import contextlib
import json
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from ruamel.yaml import YAML

from tests.support.waiting import PATIENCE_S, await_true

PROGRAM = "prometheus-alertmanager"
DEPLOY = Path(__file__).parents[3] / "deploy"
_SILENT = "nobody"  # the receiver of the shipped file that stays without a configuration


def missing() -> str | None:
    """Say what is missing, if anything."""
    return None if shutil.which(PROGRAM) else f"{PROGRAM} is not on PATH"


class Running:
    """Asks an Alertmanager what it holds."""

    def __init__(self, url: str) -> None:
        self.url = url

    def fire(self, alerts: Iterable[dict[str, str]]) -> None:
        """Post firing alerts, given by their labels."""
        made = [{"labels": labels} for labels in alerts]
        requests.post(f"{self.url}/api/v2/alerts", json=made, timeout=PATIENCE_S).raise_for_status()

    def alerts(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Active alerts by (group, severity)."""
        answer = requests.get(f"{self.url}/api/v2/alerts?active=true", timeout=PATIENCE_S)
        answer.raise_for_status()
        return {(alert["labels"].get("group", ""), alert["labels"]["severity"]): alert for alert in answer.json()}


def quick(hook_url: str) -> dict[str, Any]:
    """Return a configuration that notifies of each group, and soon."""
    route = {"group_by": ["alertname", "cluster", "group"], "group_wait": "100ms", "group_interval": "1s"}
    return {"route": {"receiver": "hook", **route}, "receivers": [_hook("hook", hook_url)]}


def shipped(hook_url: str, group_wait: str | None = None) -> dict[str, Any]:
    """Return `deploy/alertmanager/alertmanager.yml` with `hook_url` as the address of all its receivers.

    `group_wait` replaces the file's own, which is shorter than a busy machine needs to send hundreds of alerts.
    """
    config: dict[str, Any] = YAML(typ="safe").load(DEPLOY / "alertmanager" / "alertmanager.yml")
    receivers = [r if r["name"] == _SILENT else _hook(r["name"], hook_url) for r in config["receivers"]]
    route = config["route"] | ({} if group_wait is None else {"group_wait": group_wait})
    return config | {"receivers": receivers, "route": route}


def shipped_for_grafana(hook_url: str) -> dict[str, Any]:
    """Return the tree of `policies.yml` in Alertmanager's words: Grafana notifies with Alertmanager's own code."""
    file = YAML(typ="safe").load(DEPLOY / "grafana" / "provisioning" / "alerting" / "policies.yml")
    (policy,) = file["policies"]
    routes = [_route(child) for child in policy["routes"]]
    names = {route["receiver"] for route in (policy, *routes)}
    root = {key: value for key, value in policy.items() if key not in ("orgId", "routes")}
    times = [{key: value for key, value in time.items() if key != "orgId"} for time in file["muteTimes"]]
    receivers = [_hook(name, hook_url) for name in sorted(names)]
    return {"route": root | {"routes": routes}, "receivers": receivers, "time_intervals": times}


def _route(policy: dict[str, Any]) -> dict[str, Any]:
    matchers = [f"{label}{operator}{json.dumps(value)}" for label, operator, value in policy["object_matchers"]]
    return {key: value for key, value in policy.items() if key != "object_matchers"} | {"matchers": matchers}


def _hook(name: str, url: str) -> dict[str, Any]:
    return {"name": name, "webhook_configs": [{"url": url, "send_resolved": True}]}


@contextmanager
def alertmanager(folder: Path, config: dict[str, Any]) -> Iterator[Running]:
    """Start one with a configuration; it is gone afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alertmanager.yml").write_text(json.dumps(config))  # JSON is YAML
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
        process.wait(PATIENCE_S)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    def is_ready() -> bool:
        assert process.poll() is None, "Alertmanager ended at once"
        with contextlib.suppress(requests.RequestException):
            return requests.get(f"{url}/-/ready", timeout=1).ok
        return False

    await_true(is_ready, url)
