"""Debian's Prometheus and Alertmanager on free ports, with the configuration files that docker-compose.yml mounts."""

import math
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from streaming.embedded.ports import free_ports
from tests.support.waiting import await_true

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "deploy" / "prometheus" / "prometheus.yml"
RULE_FILE = ROOT / "dashboards" / "rendered" / "prometheus-rules.yml"
ROUTING = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
PROGRAM = "prometheus"
ALERTMANAGER = "prometheus-alertmanager"
SCRAPE_S = 2  # also the time a scrape may take: a busy machine needs more than one


def missing() -> str | None:
    """Say what is missing, if anything."""
    absent = [program for program in (PROGRAM, ALERTMANAGER) if not shutil.which(program)]
    return f"not on PATH: {', '.join(absent)}" if absent else None


def configured(folder: Path, serve: str, alertmanager: str) -> Path:
    """Copy the configuration of the compose file, addresses replaced, and scraping more often."""
    text = CONFIG.read_text()
    for ours, theirs in (
        ("serve:8844", serve),
        ("alertmanager:9093", alertmanager),
        ("interval: 5s", f"interval: {SCRAPE_S}s"),
    ):
        assert ours in text
        text = text.replace(ours, theirs)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(RULE_FILE, folder / "rules.yml")
    path = folder / "prometheus.yml"
    path.write_text(text)
    return path


class Asking:
    """Asks a running Prometheus; `at_s`: what it knew at this instant, whatever it scrapes or fails to scrape later."""

    def __init__(self, url: str, at_s: float | None = None) -> None:
        self.url, self._at_s = url, at_s

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the data of an answer."""
        answer = requests.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=20)
        body = answer.json()
        assert body["status"] == "success", (parameters, body)
        return body["data"]

    def now(self, expr: str) -> list[dict[str, Any]]:
        """Return the samples of an instant query."""
        return self.get("query", query=expr, time=self._at_s)["result"]

    def ever(self, expr: str, start_s: float, end_s: float) -> list[dict[str, Any]]:
        """Return the series of a range query that hold a number somewhere.

        Its steps are counted back from the end: counted from the start the last could lie before what came last.
        """
        start_s = end_s - math.ceil(end_s - start_s)
        found = self.get("query_range", query=expr, start=start_s, end=end_s, step=1)["result"]
        return [series for series in found if any(value != "NaN" for _, value in series["values"])]


@contextmanager
def prometheus(folder: Path, serve: str, alertmanager: str) -> Iterator[Asking]:
    """Start one that scrapes `serve` and alerts `alertmanager` (host:port); it is gone afterwards."""
    with _scraping(folder, configured(folder, serve, alertmanager)) as asking:
        yield asking


@contextmanager
def configured_as(folder: Path, text: str) -> Iterator[Asking]:
    """Start one with a configuration of one's own."""
    folder.mkdir(parents=True)
    config = folder / "prometheus.yml"
    config.write_text(text)
    with _scraping(folder, config) as asking:
        yield asking


@contextmanager
def _scraping(folder: Path, config: Path) -> Iterator[Asking]:
    with _running(PROGRAM, folder, f"--config.file={config}", f"--storage.tsdb.path={folder}/data") as url:
        yield Asking(url)


@contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """Start an Alertmanager with the compose file's routing; gives its URL."""
    options = (f"--config.file={ROUTING}", f"--storage.path={folder}/data", "--cluster.listen-address=")
    with _running(ALERTMANAGER, folder, *options) as url:
        yield url


@contextmanager
def _running(program: str, folder: Path, *options: str) -> Iterator[str]:
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("wb") as log:
        command = [program, *options, f"--web.listen-address=127.0.0.1:{port}"]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def ready() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        try:
            return requests.get(f"{url}/-/ready", timeout=1).ok
        except requests.ConnectionError:
            return False

    try:
        await_true(ready)
        yield url
    finally:
        process.terminate()
        process.wait(20)
