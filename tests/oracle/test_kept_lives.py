"""Lives that were once judged wrong, kept as files: they need no Java, and every change of the model is run on them."""

import pytest

from tests.oracle.judge import judge
from tests.oracle.kept import FOLDER, load

KEPT = sorted(FOLDER.glob("*.jsonl.gz"))


LISTED = {
    "a-static-member-in-a-phase-that-ended-unseen": "a newcomer that nothing had named",
    "a-session-that-ended-the-phase-before": "a newcomer that nothing had named",
    "a-successor-that-metadata-did-not-yet-name": "never heard, nor was anybody since it joined",
    "emptied-by-a-coordinator-unseen-as-one-left-another": "a leave sent to a deposed coordinator",
    "emptied-unseen-after-a-leave-to-a-deposed-coordinator": "a leave sent to a deposed coordinator",
}
"""Another class that occurs in a life: it is of other members than the one that was judged wrong."""


@pytest.mark.parametrize("path", KEPT, ids=[path.name.partition(".")[0] for path in KEPT])
def test_the_monitor_agrees_with_the_coordinator_on(path):
    judgement = judge(load(path))
    assert [str(each) for each in judgement.disagreements] == []
    listed = LISTED.get(path.name.partition(".")[0])
    assert judgement.listed.keys() <= {"a cause that depends on when a coordinator loaded", listed}
    assert judgement.compared["session-expired"] + judgement.compared["rebalance-timeout"] > 0
