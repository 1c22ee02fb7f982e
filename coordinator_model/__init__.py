"""A model of consumer groups, derived from the records that their coordinator wrote and the requests that it answered.

The pipeline::

    SourceRow --parse_row--> Event --Shard.apply--> reports --incidents.diff--> transitions

* ``decode``          a row of Kafka becomes events: records of ``__consumer_offsets``, request-log lines, reports
* ``brokers``         a broker's clock as its telemetry shows it, and which broker coordinates: progress, gaps, moves
* ``replica``         one group, replayed from its events, and the timers of its members' sessions
* ``lag``             from commits and end offsets to the lag, the status and the stall of each partition
* ``rules``           the findings that are true now; the rules read the model and change nothing
* ``shard``           everything one partition of ``__consumer_offsets`` coordinates, event by event, and its state
* ``incidents``       turns findings into openings, escalations and closings of incidents
* ``lag_tracker``     the lag of all groups of a capture
* ``capture_replay``  replays a capture through the same shards

Each imports only from those above it and from the modules that all share: ``events``, ``errors``, ``states``,
``thresholds``, ``client``, ``membership``, ``group_report``, ``recreated``, and the two blocks of columns. ``decode``
and ``brokers`` do not import each other, nor do ``replica`` and ``lag``. The layers are in ``pyproject.toml`` and are
checked.

The package is pure: it uses the standard library only, no clock and no I/O. All instants are epoch milliseconds of the
coordinator's clock.
"""
