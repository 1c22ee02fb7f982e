"""Lives that were once judged wrong, kept as files: they need no Java, and every change of the model is run on them."""

import pytest

from tests.oracle.judge import judge, settings_of
from tests.oracle.kept import FOLDER, load
from tests.oracle.monitor import Monitor
from tests.oracle.perturb import arrivals, probe_away
from tests.oracle.truth import BATCH_MS

KEPT = sorted(FOLDER.glob("*.jsonl.gz"))


DATED = "a cause that depends on when a coordinator loaded"
NAMELESS, DEPOSED = "a newcomer that nothing had named", "a leave sent to a deposed coordinator"
LISTED = {
    "a-goodbye-that-the-next-coordinator-never-heard": {DATED: 1},
    "a-session-that-ended-the-phase-before": {NAMELESS: 1},
    "a-static-member-in-a-phase-that-ended-unseen": {NAMELESS: 1},
    "a-successor-that-waited-at-the-next-coordinator": {DATED: 2},
    "emptied-by-a-coordinator-unseen-as-one-left-another": {DEPOSED: 1},
    "emptied-unseen-after-a-leave-to-a-deposed-coordinator": {DEPOSED: 1, DATED: 1},
    "expired-again-since-it-came-back": {DATED: 1},
    "expired-at-both-coordinators": {DATED: 1},
    "removed-with-a-dynamic-member-alive": {DATED: 2},
}
"""What nobody outside can decide, and how often: it is of other members than the one that was judged wrong."""


@pytest.mark.parametrize("path", KEPT, ids=[path.name.partition(".")[0] for path in KEPT])
def test_the_monitor_agrees_with_the_coordinator_on(path):
    judgement = judge(load(path))
    assert [str(each) for each in judgement.disagreements] == []
    assert judgement.listed == LISTED.get(path.name.partition(".")[0], {})
    assert judgement.compared["session-expired"] + judgement.compared["rebalance-timeout"] > 0


def test_no_broker_is_blamed_for_what_happens_while_nobody_probes():
    """Heartbeats come seconds apart, so while `run` is down a broker seems to stand still again and again."""
    told = []
    lives = [life for life in map(load, KEPT) if "+" not in life.plan.kind]
    for life in lives:
        monitor, batch, until_ms = Monitor(settings_of(life)), [], 0
        for at_ms, row in arrivals(life.rows, probe_away(60_000), life.plan.kind):
            if at_ms > until_ms:
                monitor.read(batch)
                batch, until_ms = [], at_ms + BATCH_MS
            batch.append(row)
        monitor.read(batch, final=True)
        told += monitor.incidents()
    assert len(lives) >= 5
    assert len([line for line in told if line["rule"] == "session-expired"]) > 5
    assert [line["summary"] for line in told if line["rule"] == "coordinator-paused"] == []
