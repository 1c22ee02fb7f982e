"""A state of the format before goes on to the same outputs as one that this code has made.

``tests/fixtures/states`` has states that the code of an earlier format wrote in the middle of some kept lives: in join
phases that go on, with removals that are not judged, and with a phase that no answer reported.
"""

import base64
import gzip
import json
from pathlib import Path

import pytest

from coordinator_model.shard import snapshot
from coordinator_model.shard.shard import Shard, ShardSettings
from tests.oracle.kept import FOLDER as LIVES
from tests.oracle.kept import load
from tests.oracle.monitor import Monitor

BATCH = 25
SETTINGS = ShardSettings(cluster="c", partitions=1, live_from_ms=0)
STATES = Path(__file__).parents[2] / "fixtures" / "states"
FORMAT_27 = json.loads(gzip.decompress((STATES / "format-27.json.gz").read_bytes()))


def read_until(number, rows):
    """Read rows in the batches that the state was written after."""
    monitor = Monitor(SETTINGS)
    for start in range(0, number, BATCH):
        monitor.read(rows[start : start + BATCH])
        monitor.restart()
    return monitor


def goes_on(monitor, rows):
    monitor.outputs.clear()
    monitor.read(rows, final=True)
    return monitor.outputs, monitor.views()


@pytest.mark.parametrize("kept", FORMAT_27, ids=[kept["life"] for kept in FORMAT_27])
def test_a_state_of_format_27_goes_on_as_one_of_this_format(kept):
    rows = load(LIVES / f"{kept['life']}.jsonl.gz").rows
    one, other = read_until(kept["rows"], rows), read_until(kept["rows"], rows)
    state = (27, *map(base64.b64decode, kept["state"]))
    other.shard = Shard.restore(0, SETTINGS, state)
    assert other.shard.dump()[0] == snapshot.VERSION
    assert Shard.restore(0, SETTINGS, other.shard.dump()).dump() == other.shard.dump()
    assert goes_on(other, rows[kept["rows"] :]) == goes_on(one, rows[kept["rows"] :])


@pytest.mark.parametrize("kept", FORMAT_27[:1], ids=[kept["life"] for kept in FORMAT_27[:1]])
def test_a_state_of_format_28_takes_the_protocol_of_the_last_record_from_the_replica(kept):
    shard = Shard.restore(0, SETTINGS, (27, *map(base64.b64decode, kept["state"])))
    _, heartbeats, memory, lists, groups, *commits = shard.dump()
    index = snapshot._GROUP_FIELDS.index("recorded_protocol")
    pieces = {name: snapshot._unsqueezed(piece) for name, piece in snapshot.load_slices(groups).items()}
    for body in pieces.values():
        assert body[2].pop(index) in (None, body[2][snapshot._GROUP_FIELDS.index("protocol")])
    of_28 = snapshot.dump_slices({name: snapshot._squeezed(body) for name, body in pieces.items()})
    restored = Shard.restore(0, SETTINGS, (28, heartbeats, memory, lists, of_28, *commits))
    for group in restored.groups():
        before, after = shard.group_store.replica(group), restored.group_store.replica(group)
        assert (after.recorded_protocol, after.recorded_leader) == (before.protocol, before.recorded_leader)


def test_all_that_a_phase_can_be_is_among_these_states():
    phases, unreported, unjudged = [], [], []
    for kept in FORMAT_27:
        shard = Shard.restore(0, SETTINGS, (27, *map(base64.b64decode, kept["state"])))
        for replica in map(shard.group_store.replica, shard.groups()):
            phases += [replica.phase, *replica.ended_phases]
            unreported += [replica.unreported_phase] if replica.unreported_phase else []
            unjudged += [departure for departure in replica.departures if not departure.judged]
    assert unreported
    assert unjudged
    assert {phase.ended is None for phase in phases} == {True, False}
    assert {phase.started.by is None for phase in phases if phase.started} == {True, False}
