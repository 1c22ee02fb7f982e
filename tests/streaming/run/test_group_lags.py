"""Lags of groups from what batches say and rounds of end offsets, without a broker."""

from tests.streaming.run.lag_story import T0, Lags, commits, member, report


def test_a_partitions_lag_is_its_end_less_what_was_committed(tmp_path):
    lags = Lags(tmp_path)
    lags.apply(
        commits(("pay", "orders", 0, 40), ("pay", "orders", 1, 7, 1)), report("pay", member("m1", partitions=(0, 1, 2)))
    )
    lags.round(T0 + 10_000, {"orders": [50, 7, 3]})
    assert lags.rows("pay") == [("orders", 0, 40, 50, 10), ("orders", 1, 7, 7, 0), ("orders", 2, None, 3, None)]
    print(lags.said)
