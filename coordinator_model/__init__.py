"""A model of consumer groups, derived from the records that their coordinator wrote and the requests that it answered.

The pipeline::

    SourceRow --parse_row--> Event --Shard.apply--> reports --incidents.diff--> transitions

* ``decode``          a row of Kafka becomes events: records of ``__consumer_offsets``, request-log lines, reports
* ``brokers``         a broker's clock as its telemetry shows it, and which broker coordinates: progress, gaps, moves
* ``replica``         one group, replayed from its events, and the timers of its members' sessions
* ``rules``           the findings that are true now; the rules read the model and change nothing
* ``shard``           everything one partition of ``__consumer_offsets`` coordinates, event by event, and its state
* ``incidents``       turns findings into openings, escalations and closings of incidents
* ``capture_replay``  replays a capture through the same shards

Each imports only from those above it, and from ``events``, ``states`` and ``thresholds``.

The package is pure: it uses the standard library only, no clock and no I/O. All instants are epoch milliseconds of the
coordinator's clock.
"""
