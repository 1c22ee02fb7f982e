"""The store fed by the real model on real captures: what it holds is what `replay` prints."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator_model import capture_replay
from coordinator_model.decode.parse import SourceRow
from coordinator_model.group_report import read_outputs
from coordinator_model.incidents import Kind
from coordinator_model.shard.shard import Shard, ShardSettings
from streaming.capture.file import open_text, read_rows
from streaming.config.settings import Settings
from streaming.store import Store
from tests.support.story import T0, Story, silent_until_moved

CAPTURES = sorted((Path(__file__).parents[2] / "fixtures" / "captures").glob("*.jsonl.gz"))
SETTINGS = ShardSettings(cluster="default", partitions=0, live_from_ms=0)


def rows(path: Path) -> list[SourceRow]:
    with open_text(path) as lines:
        return [row for row in read_rows(lines) if isinstance(row, SourceRow)]


def outputs_of(path: Path) -> list[dict]:
    """The outputs of all shards, as the job's operator makes them."""
    reading = capture_replay._read(rows(path))
    lines = [event for event in reading.events if not isinstance(event, capture_replay._WITHOUT_CLOCK)]
    settings = replace(SETTINGS, live_from_ms=min(event[0] for event in lines))
    settings = capture_replay._as_captured(settings, reading)
    ticks = capture_replay._ticks(lines, capture_replay._gaps(reading), reading.mute)
    made: list[dict] = []
    for number, events in capture_replay._route(reading.events, settings.partitions).items():
        named = [event for row in reading.cluster if (event := row.named(number)) is not None]
        made += Shard.restore(number, settings, None).apply([*events, *ticks, *named], final=True)
    return made


def batches(outputs: list[dict], count: int) -> Iterator[list[dict]]:
    """Cut the outputs by time, as batches do: what a shard says of the past comes after what it has said before."""
    newest_ms: defaultdict[int, int] = defaultdict(int)
    said: list[tuple[int, dict]] = []
    for output in outputs:
        shard = output["shard"]
        newest_ms[shard] = max(newest_ms[shard], output["at_ms"])
        said.append((newest_ms[shard], output))
    times = sorted(at_ms for at_ms, _ in said)
    bounds = [times[len(times) * number // count] for number in range(1, count)] + [times[-1] + 1]
    begin = 0
    for end in bounds:
        yield [output for at_ms, output in said if begin <= at_ms < end]
        begin = end


@pytest.mark.parametrize("restarted", [False, True], ids=["one process", "a process each batch"])
@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name)
def test_the_store_holds_what_replay_prints(capture, restarted, tmp_path):
    url = f"sqlite:///{tmp_path}/monitor.db"
    store = Store.open(url)
    told = []
    for number, batch in enumerate(batches(outputs_of(capture), 7)):
        if restarted:
            store.close()
            store = Store.open(url)
        result = store.apply_batch(checkpoint_id="c", batch_id=number, outputs=read_outputs(batch), settings=Settings())
        told += [step for step in result.transitions if step.kind is not Kind.UPDATED]
    expected = capture_replay.replay_rows(rows(capture), SETTINGS)
    assert sorted((t.incident.incident_id, t.kind, t.at_ms) for t in told) == sorted(
        (t.incident.incident_id, t.kind, t.at_ms) for t in expected.transitions
    )
    opened = {t.incident.incident_id for t in expected.transitions if t.kind is Kind.OPENED}
    closed = {t.incident.incident_id for t in expected.transitions if t.kind is Kind.CLOSED}
    assert {incident["incident_id"] for incident in store.read.incidents(state="open").objects} == opened - closed
    groups = {group["group"]: group["members"] for group in store.read.groups().objects}
    assert groups.keys() == {group["group"] for group in expected.groups}
    for group in expected.groups:
        assert [m["member_id"] for m in groups[group["group"]]] == [m["member_id"] for m in group["members"]]
    store.close()


def live_batches(story: Story, until_ms: int, batch_ms: int = 2_000) -> Iterator[list[dict]]:
    """The outputs of a story's only shard, batch by batch, as the operator makes them while it happens."""
    reading = capture_replay._read(story.source_rows(until_ms))
    lines = [event for event in reading.events if not isinstance(event, capture_replay._WITHOUT_CLOCK)]
    ticks = capture_replay._ticks(lines, capture_replay._gaps(reading), reading.mute)
    named = [event for row in reading.cluster if (event := row.named(0)) is not None]
    events = [*capture_replay._route(reading.events, 1)[0], *ticks, *named]
    settings, state = ShardSettings(cluster="default", partitions=1, live_from_ms=T0), None
    for end_ms in range(T0 + batch_ms, T0 + until_ms + 1, batch_ms):
        shard = Shard.restore(0, settings, state, views_kept=True)
        new = [event for event in events if end_ms - batch_ms < event.order_ms <= end_ms]
        yield shard.apply(new, wall_ms=end_ms + 200)
        state = shard.dump()


def test_a_broker_that_is_still_mute_when_it_leads_again_is_told_again(tmp_path):
    story = silent_until_moved().leads(80_000, "broker-1", *range(85_000, 120_000, 5_000))
    store = Store.open(f"sqlite:///{tmp_path}/monitor.db")
    told = []
    for number, outputs in enumerate(live_batches(story, 120_000)):
        result = store.apply_batch(
            checkpoint_id="c", batch_id=number, outputs=read_outputs(outputs), settings=Settings()
        )
        told += [step.kind for step in result.transitions if step.incident.rule == "telemetry-stalled"]
    assert told == [Kind.OPENED, Kind.CLOSED, Kind.OPENED]
    store.close()
