"""Lives that were once judged wrong, kept as files: they need no Java, and every change of the model is run on them."""

import pytest

from tests.oracle.judge import judge
from tests.oracle.kept import FOLDER, load

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
