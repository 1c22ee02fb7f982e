"""While telemetry stands still nobody is known to live; once it is back everybody is again."""

from coordinator_model.decode.parse import parse_row
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.builders import T0, stable

LAST_LINE_MS, BACK_MS = 20_000, 50_000


def liveness(outputs):
    """How the members were shown, one entry a view."""
    views = [output["view"] for output in outputs if output["kind"] == "report" and output["view"]]
    return [[member["liveness"] for member in view["members"]] for view in views]


def test_members_are_unknown_while_telemetry_is_stalled():
    """All become unknown at once, 15 s after the last line, and alive again with the next one."""
    story = stable("m1", "m2")
    for member in ("m1", "m2"):
        story.beats(member, 1_000, LAST_LINE_MS).beats(member, BACK_MS, BACK_MS + 5_000)
    story.silent(LAST_LINE_MS + 1, BACK_MS - 1)
    shard = Shard.restore(0, ShardSettings(cluster="c", partitions=1, live_from_ms=T0), None)

    def play(from_ms, until_ms):
        rows = [row for row in story.source_rows(until_ms) if row.timestamp_ms >= T0 + from_ms]
        return shard.apply([event for row in rows for event in parse_row(row)], wall_ms=T0 + until_ms)

    assert liveness(play(0, LAST_LINE_MS))[-1] == ["alive", "alive"]
    assert liveness(play(LAST_LINE_MS + 1, LAST_LINE_MS + 15_000)) == []
    assert liveness(play(LAST_LINE_MS + 15_001, LAST_LINE_MS + 15_500)) == [["unknown", "unknown"]]
    assert liveness(play(BACK_MS, BACK_MS + 5_000))[-1] == ["alive", "alive"]
