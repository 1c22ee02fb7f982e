"""What the sink does around a batch."""

import gc

import pytest

from streaming.run.sink import without_collections


def failing():
    with without_collections():
        raise ValueError(gc.isenabled())


def test_garbage_is_not_collected_within_a_batch_and_is_after_one_that_failed():
    with pytest.raises(ValueError, match="False"):
        failing()
    assert gc.isenabled()
