"""The real job where only records are read: a removal is told, and ends by the wall clock though no record follows."""

import json
import time

import pytest

pytestmark = pytest.mark.spark
REMOVED = "SELECT body FROM incidents WHERE rule = 'member-removed'"


def test_a_removal_is_told_and_ends_though_no_record_comes_after_it(coordinator, monitor, members):
    coordinator.record("orders", 3, members[:1], 0)
    coordinator.producer.flush()
    watching = monitor()
    watching.wait_for("SELECT 1 FROM groups WHERE members = 1 AND members_unknown = 1 AND state = 'Stable'")
    now_s = time.time() - coordinator.start_ms / 1_000
    coordinator.record("orders", 4, [], now_s)
    coordinator.producer.flush()
    [(told,)] = watching.wait_for(REMOVED)
    told = json.loads(told)
    assert (told["member_id"], told["severity"], told["cause"]) == (members[0].member_id, "info", "unknown")
    assert "gone between generation 3 and 4" in told["summary"]
    [(ended,)] = watching.wait_for(f"{REMOVED} AND closed_ms IS NOT NULL")
    assert json.loads(ended)["reason"] == "recovered"
    assert watching.rows("SELECT DISTINCT rule FROM incidents WHERE severity = 'page'") == []
    assert watching.stop() == 0
