"""The columns of commits beside the core's own window, one commit at a time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coordinator_model.commit_block import NO_OFFSET
from coordinator_model.lag.partition import WINDOW, Commit
from coordinator_model.lag.window import extended
from streaming.run.lag.commit_table import NOBODY, CommitTable
from tests.streaming.run.lag_story import T0, block

ENDS = {0: 1_000, 1: NO_OFFSET}
PLACES = [(group, "orders", partition) for group in ("pay", "ship") for partition in (0, 1)]
ROWS = st.tuples(
    st.sampled_from(PLACES),
    st.one_of(st.none(), st.integers(0, 2_000)),
    st.sampled_from([-2_000, 0, 300, 1_000, 5_000]),
    st.sampled_from([b"", b"a" * 16, b"b" * 16]),
)
BATCHES = st.lists(st.lists(ROWS, max_size=8), max_size=8)


def ends_of(topics, partitions, at_ms):
    return np.array([ENDS[partition] for partition in partitions.tolist()], np.int64)


def rows_of(batches):
    """Rows of blocks: record offsets rise, instants mostly do."""
    record, at_ms = 0, T0
    for batch in batches:
        rows = []
        for place, offset, step_ms, topic_id in batch:
            record, at_ms = record + 1, at_ms + step_ms
            rows.append((*place, offset, record, at_ms, 2, topic_id))
        yield rows


class Plain:
    """One commit at a time."""

    def __init__(self):
        self.windows, self.ids = {}, {}

    def take(self, rows):
        for group, topic, partition, offset, _, at_ms, _, topic_id in rows:
            place = (group, topic, partition)
            known = self.ids.get(place, b"")
            if offset is None or (known and topic_id and known != topic_id):
                self.windows.pop(place, None)
            if offset is None:
                self.ids.pop(place, None)
                continue
            end = None if ENDS[partition] == NO_OFFSET else ENDS[partition]
            self.windows[place] = extended(self.windows.get(place, ()), Commit(offset, at_ms, end))
            self.ids[place] = topic_id or known


def windows_of(table):
    found = {}
    slots = np.concatenate([table.slots_of("pay"), table.slots_of("ship")])
    windows = table.windows(slots)
    for row, slot in enumerate(slots.tolist()):
        columns = [column[row, WINDOW - windows.filled[row] :].tolist() for column in windows[:3]]
        place = (table.groups[int(table.group[slot])], table.topics[int(table.topic[slot])], int(table.partition[slot]))
        found[place] = tuple(
            Commit(o, at, None if end == NO_OFFSET else end) for o, at, end in zip(*columns, strict=True)
        )
    return found


@given(BATCHES, st.randoms())
def test_windows_are_those_of_one_commit_at_a_time(batches, random):
    table, plain = CommitTable(), Plain()
    for rows in rows_of(batches):
        half = len(rows) // 2
        blocks = [block(*rows[:half]), block(*rows[half:])]
        random.shuffle(blocks)
        table.apply(blocks, ends_of)
        plain.take(rows)
        assert windows_of(table) == plain.windows
        again = CommitTable.load(table.dump())
        assert windows_of(again) == plain.windows


def test_the_newest_record_wins_whatever_the_order_of_blocks():
    table = CommitTable()
    table.apply([block(("pay", "orders", 0, 50, 9)), block(("pay", "orders", 0, 40, 8))], ends_of)
    table.apply([block(("pay", "orders", 0, 10, 3))], ends_of)
    table.apply([block(("pay", "orders", 0, 50, 9))], ends_of)  # comes again
    assert table.newest(table.slots_of("pay")).tolist() == [50]
    assert table.commits == {"pay": 2}


def test_of_many_rows_of_a_partition_in_one_batch_the_newest_fill_the_window():
    table = CommitTable()
    rows = [("pay", "orders", 0, number, number, T0 + number * 2_000) for number in range(50)]
    table.apply([block(*rows)], ends_of)
    assert table.windows(table.slots_of("pay")).offsets[0].tolist() == list(range(40, 50))


def test_a_tombstone_frees_its_slot_and_what_only_it_used():
    table = CommitTable()
    table.apply([block(("pay", "orders", 0, 5, 1), ("ship", "bills", 0, 5, 2), metadata={0: "head"})], ends_of)
    table.apply([block(("pay", "orders", 0, None, 3), ("never", "seen", 0, None, 4))], ends_of)
    assert (len(table), table.topics.names(), table.metadata) == (1, ["bills"], {})
    table.apply([block(("new", "other", 1, 1, 5))], ends_of)
    slot = table.slots_of("new")
    assert (table.newest(slot).tolist(), table.owner[slot].tolist(), len(table)) == ([1], [NOBODY], 2)


def test_metadata_is_that_of_the_newest_commit():
    table = CommitTable()
    rows = [("pay", "orders", 0, 1, 1), ("pay", "orders", 0, 2, 2)]
    table.apply([block(*rows, metadata={0: "first", 1: "second"})], ends_of)
    assert list(table.metadata.values()) == ["second"]
    table.apply([block(("pay", "orders", 0, 3, 3))], ends_of)
    assert table.metadata == {}


def test_only_topic_ids_in_use_are_kept():
    """A topic that is recreated all day has ever new ones; another commit may have been made without one."""
    table, another = CommitTable(), b"z" * 16
    table.apply([block(("mail", "bills", 0, 1, 1, T0, 1, another), ("ship", "bills", 0, 1, 2))], ends_of)
    for number in range(50):
        newest = number.to_bytes(16)
        table.apply([block(("pay", "orders", 0, 1, number, T0, 1, newest))], ends_of)
    for kept in (CommitTable.load(table.dump()), table):
        ids = [kept.topic_ids[kept.topic_id[kept.slots_of(group)[0]]] for group in ("pay", "mail", "ship")]
        assert ids == [newest, another, b""]
        assert len(kept.topic_ids) == 3
    table.apply([block(("pay", "orders", 0, 2, 99, T0 + 9_000, 1, newest))], ends_of)
    assert table.windows(table.slots_of("pay")).filled.tolist() == [2]  # of the same topic


def test_slots_are_more_than_at_first():
    table = CommitTable()
    rows = [("pay", "orders", number, number, number) for number in range(5_000)]
    table.apply([block(*rows)], ends_of_all)
    assert sorted(table.newest(table.slots_of("pay")).tolist()) == list(range(5_000))


def test_a_commit_from_the_future_has_the_instant_at_which_it_was_read():
    table, year_ms = CommitTable(), 365 * 86_400_000
    dates = [(T0, T0), (T0 + year_ms, T0 + 5_000), (T0 + 10_000, T0 + 10_000), (T0 + 30_000, T0 + 15_000)]
    for number, (record_ms, read_ms) in enumerate(dates):
        table.apply([block(("pay", "orders", 0, number, number, record_ms))], ends_of, read_ms)
    windows = table.windows(table.slots_of("pay"))
    assert (windows.at_ms[0, -4:] - T0).tolist() == [0, 5_000, 10_000, 30_000]  # the last one: clocks differ
    assert windows.offsets[0, -4:].tolist() == [0, 1, 2, 3]


def test_deleted_groups_are_forgotten_together_but_not_the_commits_made_since():
    table = CommitTable()
    rows = [("pay", "orders", 0, 1, 1, T0), ("pay", "bills", -3, 2, 2, T0 + 9), ("ship", "orders", 0, 3, 3, T0)]
    table.apply([block(*rows, ("mail", "orders", 0, 4, 4, T0))], ends_of_all)
    table.owner[table.slots_of("ship")] = 0
    table.forget(["pay", "ship", "unknown"], [T0, T0, T0])
    slots, sizes = table.slots_of_each(["ship", "pay", "mail", "unknown"])
    assert (table.newest(slots).tolist(), sizes.tolist()) == ([2, 4], [0, 1, 1, 0])
    assert (table.partition[slots].tolist(), table.topics.names()) == ([-3, 0], ["orders", "bills"])
    assert table.commits == {"pay": 2, "mail": 1}


def ends_of_all(topics, partitions, at_ms):
    return partitions.astype(np.int64)
