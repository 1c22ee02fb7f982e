"""`serve` killed at random instants: whoever waits for alerts gets each, in order, and nothing that was not."""

import random
import threading

import pytest

from streaming.config.settings import Settings
from streaming.store import Store
from tests.streaming.serve.conftest import STALLED_MS
from tests.streaming.serve.test_command import Served, start
from tests.support.outputs import CLUSTER, START_MS, ended, finding, report

SETTINGS = Settings(cluster=CLUSTER)


def write(store, groups, stopped):
    """What `run` does meanwhile: incidents open, get worse and close, one batch after the other."""
    batch = 0
    for group in groups:
        found, worse = finding(group), finding(group, severity="page")
        for outputs in (
            [report(group, found)],
            [report(group, worse)],
            [report(group, ended(worse, START_MS + 9_000))],
        ):
            store.apply_batch(checkpoint_id="c", batch_id=batch, outputs=outputs, settings=SETTINGS)
            batch += 1
            stopped.wait(0.05)


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.soak)])
@pytest.mark.timeout(900)
def test_killed_again_and_again_nothing_is_lost_doubled_out_of_order_or_reopened(tmp_path, peer, kills):
    """In Burrow a restart gives every incident a new id and never closes the old one."""
    url = f"sqlite:///{tmp_path}/monitor.db"
    config = tmp_path / "monitor.toml"
    config.write_text(f"""
cluster = "{CLUSTER}"
store = {{url = "{url}", retention_days = 3_650}}
serve = {{port = 0, monitor_stalled_ms = {STALLED_MS}}}
quality.enabled = false
[[notify]]
kind = "webhook"
url = "{peer.url}"
""")
    store, chance = Store.open(url), random.Random(kills)
    groups = [f"g{number}" for number in range(kills * 8)]
    writer = threading.Thread(target=write, args=(store, groups, threading.Event()))
    writer.start()
    for _ in range(kills):
        served = Served(start(config))
        threading.Event().wait(chance.random() * 2)
        served.process.kill()
        served.process.communicate()
    last = Served(start(config))
    writer.join()
    closed = {"transition": "closed"}.items()
    peer.wait_for(lambda peer: len({b["group"] for b in peer.bodies if closed <= b.items()}) == len(groups), 120)
    last.process.kill()
    last.process.communicate()

    told: dict[str, list[str]] = {}
    ids: dict[str, set[str]] = {}
    for body in peer.bodies:
        steps = told.setdefault(body["group"], [])
        if not steps or steps[-1] != body["transition"]:  # at least once: the same again is allowed, nothing else is
            steps.append(body["transition"])
        ids.setdefault(body["group"], set()).add(body["incident_id"])
    assert told == {group: ["opened", "escalated", "closed"] for group in groups}
    assert all(len(of_group) == 1 for of_group in ids.values())
    assert len(peer.bodies) <= 3 * len(groups) + kills  # doubled only where the kill came between answer and mark
    assert store.read.incidents(state="open").total == 0
    assert store.read.incidents().total == len(groups)
    store.close()
