"""The crash tests' stand-in cluster without waiting: `replay` must agree with what it knows, before any job is killed.

Otherwise a crash test could fail where nothing crashed. In an earlier version, members sent heartbeats with a
generation that nobody had told them yet, which cost a session. It was found by chance, once in two runs of six minutes.
"""

import heapq
from collections import Counter

import pytest

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.parse import OFFSETS, TELEMETRY, SourceRow
from coordinator_model.shard.shard import ShardSettings
from tests.e2e import crash_cluster, crash_tale
from tests.e2e.crash_tale import EXPIRED, GROUPS, Faults

START_MS = 1_700_000_000_000
FAULTS_MS = 300_000


class NoBroker:
    bootstrap_servers = ""

    def create_topic(self, name, partitions):
        pass


class Tape(crash_cluster.LiveCluster):
    """A cluster whose time goes as fast as it can be played, and which keeps what it writes."""

    def __init__(self, seed):
        super().__init__(NoBroker(), "tape", GROUPS, size=3, seed=seed)
        self.rows = []
        self._offsets = Counter()

    def play(self, until_ms):
        while self._due and self._due[0][0] <= until_ms:
            due_ms, _, action = heapq.heappop(self._due)
            action(due_ms)

    def _send(self, topic, key, value, at_ms, partition):
        source = OFFSETS if topic == self.records else TELEMETRY
        place = (topic, partition)
        self.rows.append(SourceRow(source, *place, self._offsets[place], at_ms, key, value))
        self._offsets[place] += 1


@pytest.fixture
def tape(monkeypatch, seed):
    for module in (crash_cluster, crash_tale):
        monkeypatch.setattr(module, "now_ms", lambda: START_MS)
    monkeypatch.setattr(crash_cluster, "Producer", lambda _: None)
    made = Tape(seed)
    monkeypatch.setattr(made._thread, "start", lambda: None)
    return made.__enter__()


@pytest.mark.parametrize("seed", range(6))
def test_replay_says_what_the_stand_in_knows(tape):
    faults = Faults(tape)
    faults.begin()
    tape.play(START_MS + FAULTS_MS)
    faults.end()
    tape.play(START_MS + FAULTS_MS + 60_000)
    told = replay_rows(tape.rows, ShardSettings("c", crash_cluster.PARTITIONS, 0)).transitions
    expired = [(step.kind, step.incident) for step in told if step.incident.rule == EXPIRED]
    opened = {incident.member_id: incident for kind, incident in expired if kind == "opened"}
    reasons = {incident.member_id: incident.reason for kind, incident in expired if kind == "closed"}
    deaths = {death.member_id: death for death in tape.deaths}
    assert opened.keys() == deaths.keys()
    for name, death in deaths.items():
        assert opened[name].deadline_ms == pytest.approx(death.deadline_ms, abs=50)
    assert {reasons[name] for name in tape.returned} == {"rejoined"}
    assert len(tape.returned) > 20
