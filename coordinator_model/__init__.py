"""What is true of a consumer group, derived from what its coordinator wrote and answered.

The pipeline, in the order of reading::

    SourceRow --parse_row--> Event --Shard.apply--> reports --incidents.diff--> transitions

* ``decode``          a row of Kafka becomes events: records of ``__consumer_offsets``, request-log lines, reports
* ``brokers``         a broker's clock as its telemetry shows it, and which broker coordinates: progress, gaps, moves
* ``replica``         one group, replayed from its events, and the timers of its members' sessions
* ``rules``           the findings that are true now; only reads
* ``shard``           everything one partition of ``__consumer_offsets`` coordinates, event by event, and its state
* ``incidents``       findings to openings, escalations and closings
* ``capture_replay``  a capture through the same shards

Each imports only from those above it, and from ``events``, ``states`` and ``thresholds``.

Pure: the standard library only, no clock, no I/O. All instants are epoch milliseconds of the coordinator.
"""
