"""Brokers of 2.8 to 4.2, Scala and Java coordinators: each source alone tells what was done to their members.

Captured by `python -m tests.e2e.old_brokers`: records, and lines as a shipper sends them from the brokers' files.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from coordinator_model.capture_replay import replay_rows
from coordinator_model.decode.source_row import TELEMETRY
from coordinator_model.incidents import Kind
from coordinator_model.shard.shard import ShardSettings
from streaming.capture.file import open_text, read_rows
from streaming.client_metrics.otlp import read_metrics

FOLDER = Path(__file__).parent.parent / "fixtures" / "old_brokers"
NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz"))
REQUESTS, LOG = "requests", "log"
VIOLATIONS = ("session-expired", "rebalance-timeout", "poll-exceeded", "member-removed")
WITHOUT_REASONS = ("2.8-scala", LOG)
"""Clients give no reason to a broker before 3.2, so its log has none."""


def replayed(name, source):
    """Replay the records and the lines of one source, without holes where those of the other were."""
    with open_text(FOLDER / f"{name}.jsonl.gz") as lines:
        rows = list(read_rows(lines))
    logged = [
        row for row in rows if row.source == TELEMETRY and (b"Completed request:" in row.value) == (source == REQUESTS)
    ]
    kept = [row._replace(offset=offset) for offset, row in enumerate(logged)]
    settings = ShardSettings(cluster="c", partitions=0, live_from_ms=0)
    others = (row for row in rows if row.source != TELEMETRY)
    return replay_rows([*others, *kept], settings, read_metrics=read_metrics)


@pytest.fixture(scope="module", params=[(name, source) for name in NAMES for source in (REQUESTS, LOG)], ids="/".join)
def history(request):
    return request.param, replayed(*request.param)


def test_all_releases_are_there():
    assert NAMES == ["2.8-scala", "3.7-java", "3.9-java", "3.9-scala", "4.0", "4.1", "4.2"]


def test_who_expired_missed_a_rebalance_or_a_poll_is_told_and_nobody_else(history):
    which, told = history
    opened = [t.incident for t in told.transitions if t.kind is Kind.OPENED and t.incident.rule in VIOLATIONS]
    deeds = json.loads((FOLDER / f"{which[0]}.deeds.json").read_text())
    silent = ("left", "replaced", *(["poll-exceeded"] if which == WITHOUT_REASONS else []))
    expected = Counter((d["group"], d["member_id"], d["what"]) for d in deeds if d["what"] not in silent)
    assert Counter((i.group, i.member_id, i.rule) for i in opened) == expected
    causes = {"poll-exceeded": "poll-interval", "session-expired": "session-timeout"}
    assert [i.cause for i in opened] == [causes.get(i.rule, i.rule) for i in opened]
    if which[1] == LOG:
        assert {i.detail["source"] for i in opened} == {"coordinator-log"}


def test_every_line_is_read(history):
    _, told = history
    assert not told.undecodable


def test_clients_push_to_brokers_from_3_7_on_that_have_the_plugin(history):
    """The class for brokers before 4.2, and the one for those from there on."""
    (name, source), told = history
    expected = source == REQUESTS and name != "2.8-scala"
    assert bool(told.decoded["metrics-pushed"]) == expected
