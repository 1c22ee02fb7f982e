"""The expectations for each frame of a sample. Importing this imports great-expectations, which takes seconds."""

import os
from collections.abc import Mapping
from typing import Any, Final

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # before the import, which would send usage data

import great_expectations as gx
from great_expectations import expectations as expect

from coordinator_model.brokers.timer_reset import LONGEST_SESSION_MS

CLOCK_MS: Final = 5_000
"""How far a broker's clock may be ahead of ours."""
DELAY_MS: Final = 60_000
REJECTED_RATIO: Final = 0.01
STATES: Final = (
    "Stable", "Empty", "Dead", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady",
    "Unknown", "unknown",
)  # fmt: skip


def suites() -> Mapping[str, Any]:
    """Make a suite for each frame."""
    return {
        "groups": _suite(
            "groups",
            expect.ExpectColumnValuesToNotBeNull(column="group"),
            expect.ExpectColumnValuesToBeInSet(column="state", value_set=list(STATES)),
            expect.ExpectColumnValuesToBeInSet(
                column="type", value_set=["classic", "consumer", "share", "streams", "simple"]
            ),
            expect.ExpectColumnValuesToBeBetween(column="generation", min_value=-1),
            expect.ExpectColumnValuesToBeBetween(column="worst_headroom", min_value=0, max_value=1),
            expect.ExpectColumnValuesToBeBetween(column="age_ms", min_value=-CLOCK_MS),
            expect.ExpectColumnValuesToBeInSet(column="leader_is_member", value_set=[True]),
        ),
        "members": _suite(
            "members",
            expect.ExpectColumnValuesToNotBeNull(column="member_id"),
            expect.ExpectColumnValuesToBeInSet(column="liveness", value_set=["alive", "violated", "unknown"]),
            expect.ExpectColumnValuesToBeBetween(
                column="session_timeout_ms", min_value=1, max_value=LONGEST_SESSION_MS
            ),
            expect.ExpectColumnValuesToBeBetween(column="heartbeat_ahead_ms", max_value=CLOCK_MS),
            expect.ExpectColumnValuesToBeBetween(column="heartbeat_headroom", min_value=0, max_value=1),
        ),
        "generations": _suite(
            "generations",
            expect.ExpectColumnValuesToBeBetween(column="step", min_value=1),
        ),
        "incidents": _suite(
            "incidents",
            expect.ExpectColumnValuesToNotBeNull(column="rule"),
            expect.ExpectColumnValuesToBeInSet(column="severity", value_set=["info", "warn", "page"]),
            expect.ExpectColumnValuesToBeInSet(column="evidence", value_set=["observed", "inferred"]),
            expect.ExpectColumnValuesToBeBetween(column="opened_ahead_ms", max_value=CLOCK_MS),
            expect.ExpectColumnValuesToBeBetween(column="closed_after_ms", min_value=0),
        ),
        "sources": _suite(
            "sources",
            expect.ExpectColumnValuesToBeBetween(column="covered_ratio", min_value=1, max_value=1),
            expect.ExpectColumnValuesToBeBetween(column="rejected_ratio", max_value=REJECTED_RATIO),
            expect.ExpectColumnValuesToBeBetween(column="unknown_versions", max_value=0),
            expect.ExpectColumnValuesToBeBetween(column="delay_ms", min_value=0, max_value=DELAY_MS),
            expect.ExpectColumnValuesToBeBetween(column="progress_ahead_ms", max_value=CLOCK_MS),
        ),
    }


def _suite(name: str, *expected: Any) -> Any:
    return gx.ExpectationSuite(name=name, expectations=list(expected))
