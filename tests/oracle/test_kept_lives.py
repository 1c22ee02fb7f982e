"""Lives that were once judged wrong, kept as files: they need no Java, and every change of the model meets them."""

import pytest

from tests.oracle.judge import judge
from tests.oracle.kept import FOLDER, load

KEPT = sorted(FOLDER.glob("*.jsonl.gz"))


@pytest.mark.parametrize("path", KEPT, ids=[path.name.partition(".")[0] for path in KEPT])
def test_the_monitor_agrees_with_the_coordinator_on(path):
    judgement = judge(load(path))
    assert [str(each) for each in judgement.disagreements] == []
    assert judgement.listed.keys() <= {"a cause that hangs on when a coordinator loaded"}
    assert judgement.compared["session-expired"] + judgement.compared["rebalance-timeout"] > 0
