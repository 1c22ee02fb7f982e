"""What is played before the panels are looked at: a broker, `run`, `serve`, Prometheus and Alertmanager, all real."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from dashboards import queries
from streaming.demo.consumer import CONFLUENT, CONFLUENT_848, KAFKA_PYTHON
from streaming.demo.setting import Setting
from streaming.embedded import TELEMETRY_TOPIC
from streaming.serve import metrics
from tests.dashboards import prometheus
from tests.support.kafka_io import produce
from tests.support.waiting import await_true

GROUP = "orders"
ALONE = "shipping"
MEMBERS = 4
STALL_S = 7  # not yet at risk of its poll limit
ALL_WELL = f'count({metrics.GROUP_INFO}{{state="Stable"}}) == 2 unless on() count({metrics.GROUP_INCIDENTS})'
QUEUED = f'group="{GROUP}"'


class Played:
    """A scenario that is over, its Prometheus, /metrics at its height, and where Alertmanager sent what then."""

    def __init__(self, asking: prometheus.Asking, started_s: float, exposition: str, routed: dict) -> None:
        self.asking = asking
        self.started_s = started_s
        self.exposition = exposition
        self.routed = routed

    def ever(self, expr: str) -> list[dict]:
        """The series that an expression had at any time until now."""
        return self.asking.ever(expr, self.started_s, time.time())


@contextmanager
def play(folder: Path) -> Iterator[Played]:
    """A member killed, a group's only member killed, a rebalance that waits, and a line that nobody understands."""
    started_s = time.time()
    with Setting() as setting:
        setting.start_broker()
        setting.create_topics(GROUP, ALONE)
        setting.start_monitor()
        with (
            prometheus.alertmanager(folder / "alertmanager") as alertmanager,
            prometheus.prometheus(folder, _address(setting.url), _address(alertmanager)) as asking,
        ):
            stays = setting.start_consumer(KAFKA_PYTHON, GROUP, f"{GROUP}-1")  # it tells when it polled
            _, killed = (setting.start_consumer(CONFLUENT, GROUP, f"{GROUP}-{number}") for number in (2, 3))
            alone = setting.start_consumer(CONFLUENT_848, ALONE, f"{ALONE}-1")
            await_true(lambda: _children_run(setting) and setting.ask("/readyz"), timeout_s=300)
            await_true(lambda: _alive(setting) == MEMBERS, timeout_s=120)
            produce(setting.cluster.bootstrap_servers, TELEMETRY_TOPIC, b"Completed request:{cut")
            for child in (killed, alone):
                setting.children.remove(child)
                child.kill()
                child.end()
            for severity in ("warn", "page"):
                open_now = f'{metrics.GROUP_INCIDENTS}{{rule="session-expired", severity="{severity}"}}'
                await_true(lambda open_now=open_now: asking.now(open_now))
            await_true(lambda: asking.now('ALERTS{alertname="ConsumerGroupIncidentPage", alertstate="firing"}'))
            await_true(lambda: "ConsumerGroupIncidentPage" in _routed(alertmanager))
            routed = _routed(alertmanager)
            exposition = requests.get(f"{setting.url}/metrics", timeout=10).text
            stays.say(f"stall {STALL_S}")  # whoever comes now has to wait until it rejoins
            setting.start_consumer(CONFLUENT, GROUP, f"{GROUP}-3")
            setting.start_consumer(CONFLUENT_848, ALONE, f"{ALONE}-1")
            await_true(lambda: asking.now(f"count({queries.rebalancing(QUEUED)})"))
            await_true(lambda: _alive(setting) == MEMBERS)
            await_true(lambda: asking.now(ALL_WELL))
            await_true(lambda: asking.now(metrics.QUALITY))  # checked each half minute
            await_true(lambda: asking.now(f"rate({metrics.INCIDENTS_CLOSED}[20s]) >= 0"))
            await_true(lambda: asking.now(f"rate({metrics.QUARANTINED}[20s]) >= 0"))
            await_true(lambda: asking.now(f"rate({metrics.DECODED}[20s]) >= 0"))
            yield Played(asking, started_s, exposition, routed)


def _address(url: str) -> str:
    return url.removeprefix("http://")


def _routed(alertmanager: str) -> dict[str, set[str]]:
    """Alert name -> the receivers it goes to."""
    alerts = requests.get(f"{alertmanager}/api/v2/alerts", timeout=5).json()
    return {alert["labels"]["alertname"]: {receiver["name"] for receiver in alert["receivers"]} for alert in alerts}


def _children_run(setting: Setting) -> bool:
    for child in setting.children:
        child.require_running()
    return True


def _alive(setting: Setting) -> int:
    groups = setting.ask("/api/v1/groups") or []
    return sum(member["liveness"] == "alive" for group in groups for member in group["members"])
