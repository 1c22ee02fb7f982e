"""Is the stored data plausible as a whole? `serve` checks every 30 s with great-expectations, outside of batches.

The gate for a single row is the parser (`coordinator_model.decode.parse`, quarantine). This looks at what is left of
the stream in the store, a bounded sample and the aggregates of `run`, for what no row shows alone: generations that go
back, unknown members, clocks that differ, sources with fewer and fewer rows.

* ``sample``   the store -> four frames, plain rows in, no great-expectations
* ``suites``   what is expected of each frame
* ``checker``  runs them; results as values
* ``watch``    the thread in `serve`: results into the store, `data-quality` incidents
"""
