"""Which pages count as false, and which have a counterpart or a rule that accepts them."""

import pytest

from coordinator_model.decode.source_row import TELEMETRY, SourceRow
from tests.oracle.pages import NEAR_MS, false_pages
from tests.oracle.perturb import Arrival


def told(rule, subject, at_ms, *, severity="page", transition="opened", client="c"):
    names = {"member_id": subject, "instance_id": None, "client_id": client, "client_host": "h"}
    where = {"incident_id": f"{rule} {subject}", "rule": rule, "group": "g", "subject": subject}
    return {**where, **names, "severity": severity, "transition": transition, "at_ms": at_ms, "summary": ""}


STORM = told("rebalance-storm", "g", 100_000)
REFERENCES = {
    "the same": ([STORM], False),
    "a little later": ([{**STORM, "at_ms": 100_000 + NEAR_MS}], False),
    "much later": ([{**STORM, "at_ms": 100_001 + NEAR_MS}], True),
    "earlier, and still open": ([{**STORM, "at_ms": 1_000}], False),
    "earlier, and over": ([{**STORM, "at_ms": 1_000}, {**STORM, "at_ms": 2_000, "transition": "closed"}], True),
    "no page": ([{**STORM, "severity": "info"}], True),
    "another rule": ([told("rebalance-stuck", "g", 100_000)], True),
    "nothing": ([], True),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_a_page_is_false_without_a_counterpart(name):
    reference, is_false = REFERENCES[name]
    assert bool(false_pages([STORM], reference, [])) is is_false


def test_it_does_not_matter_which_removal_of_a_client_pages():
    reference = [told("session-expired", "m2", 100_000)]
    assert false_pages([told("poll-exceeded", "m1", 100_000)], reference, []) == []
    assert len(false_pages([told("poll-exceeded", "m1", 100_000, client="another")], reference, [])) == 1


def test_telemetry_stalled_is_right_while_no_line_comes():
    stalled = told("telemetry-stalled", "broker-1", 30_000)
    lines = [Arrival(at_ms, SourceRow(TELEMETRY, "t", 0, 0, at_ms, None, b"")) for at_ms in (10_000, 40_000)]
    assert false_pages([stalled], [], lines) == []
    assert (
        len(false_pages([stalled], [], [*lines, lines[0]._replace(row=lines[0].row._replace(timestamp_ms=26_000))]))
        == 1
    )


def test_telemetry_stalled_is_right_while_lines_come_late():
    lines = [
        Arrival(at_ms + 20_000, SourceRow(TELEMETRY, "t", 0, 0, at_ms, None, b"")) for at_ms in range(0, 50_000, 500)
    ]
    assert false_pages([told("telemetry-stalled", "broker-1", 30_000)], [], lines) == []
