"""Which partition a group lives in, as Kafka computes it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_model.shard.sharding import infer_partitions, java_string_hash, shard_of

# group -> Java's hashCode, partition of 50 (computed by Kafka)
KNOWN = {
    "g": (103, 3),
    "my-group": (-1906497762, 12),
    "test": (3556498, 48),
    "polygenelubricants": (-2147483648, 0),
    "console-consumer-12345": (158455506, 6),
    "": (0, 0),
}


@pytest.mark.parametrize("group", KNOWN)
def test_a_groups_partition_is_kafkas(group):
    assert (java_string_hash(group), shard_of(group, 50)) == KNOWN[group]


def test_a_surrogate_pair_counts_as_two_characters():
    assert java_string_hash("\U0001f600") == 31 * 0xD83D + 0xDE00


@given(st.text(st.characters()), st.integers(1, 1_000))
def test_every_name_has_a_partition(group, partitions):
    assert 0 <= shard_of(group, partitions) < partitions


@pytest.mark.parametrize("partitions", [1, 7, 50, 100])
def test_the_number_of_partitions_follows_from_where_records_lie(partitions):
    groups = [f"group-{n}" for n in range(200)]
    assert infer_partitions((g, shard_of(g, partitions)) for g in groups) == partitions


@pytest.mark.parametrize("placements", [[], [("g", 4), ("g", 5)]], ids=["nothing seen", "no number explains it"])
def test_without_an_explanation_it_is_unknown(placements):
    assert infer_partitions(placements) is None
