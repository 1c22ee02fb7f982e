"""Data quality: whether the stored data is plausible as a whole. `serve` checks it every 30 s, outside of batches.

Single rows are checked by the parser (`coordinator_model.decode.parse`, quarantine). This package checks what has
reached the store, as a bounded sample and as the aggregates of `run`, for problems that no single row shows:
generations that go back, unknown members, clocks that differ, sources with fewer and fewer rows.

* ``sample``   reads a sample from the store as plain rows in five frames, without great-expectations
* ``suites``   the expectations for each frame
* ``checker``  runs the suites; results are plain values
* ``watch``    the thread in `serve`: writes results to the store, opens `data-quality` incidents
"""
