"""The fuzzer's first seeds. `make fuzz` goes on with others, for as long as you like."""

from random import Random

import pytest

from coordinator_model.decode.parse import OFFSETS
from tests.fuzz import lines
from tests.fuzz.__main__ import run
from tests.fuzz.case import failures, kind_of, make, read, shrunk, write
from tests.fuzz.corpus import corpus, names
from tests.fuzz.pipeline import Outcome

CASES = 6
"""Two of each kind; `.ci/run` lets the fuzzer go on for a minute."""


def test_no_stranger_breaks_anything(tmp_path):
    assert run(0.0, 1, tmp_path, CASES).failed == []


@pytest.mark.parametrize("seed", [1132, 1336, 60605, 100417, 200408, 20001])
def test_a_seed_that_failed_once_passes(seed, tmp_path):
    assert run(0.0, seed, tmp_path, 1).failed == []


@pytest.mark.parametrize("name", names())
def test_each_record_of_a_capture_lies_in_the_partition_of_its_group(name):
    """Otherwise its records and its lines come to two shards, and a stranger's group may be between them."""
    base = corpus(name)
    told = [(row, group) for row, group in zip(base.rows, base.groups, strict=True) if group and row.source == OFFSETS]
    assert [group for row, group in told if base.shard(group) != row.partition] == []


def test_a_blob_is_changed_after_a_text_was_put_into_its_place():
    assert all(isinstance(lines._blob("not 64", Random(seed)), str) for seed in range(9))


def test_a_case_is_the_same_from_its_seed_and_from_its_file(tmp_path):
    for seed in range(1, 7):
        case = make(seed)
        write(case, tmp_path / "case.jsonl.gz")
        assert make(seed) == read(tmp_path / "case.jsonl.gz") == case


class _Broken:
    """A pipeline in which one row fails its batch, and nothing else happens."""

    def __init__(self, row):
        self.row = row

    def run(self, rows, _plan, *, serve):
        broken = ["batch: ValueError: this row"] if self.row in rows else []
        return Outcome(failures=broken)


def test_a_failing_case_is_made_small():
    case = make(1)
    bad = next(change.after[-1] for change in case.changes if change.changed)
    small = shrunk(case, lambda tried: "batch: ValueError" in map(kind_of, failures(tried, _Broken(bad))))
    assert len(small.changes) == 1
    assert bad in small.after
