"""What is true about a consumer group, told from what its coordinator wrote and answered.

The pipeline, in the order of reading::

    SourceRow --ingest--> Event --Shard.apply--> reports --incidents.diff--> transitions

* ``records``, ``member_protocol``  bytes of ``__consumer_offsets`` to values (``decode`` never raises)
* ``telemetry``                     one line of the broker's request log, or of a client's reporter, to an event
* ``ingest``                        the door: a row of either source becomes an event, a rejection or nothing
* ``broker_clock``                  a broker's clock as its telemetry shows it: progress, gaps, moves, coverage
* ``replica``                       one group, replayed; ``replay`` is the only writer
* ``liveness``                      when a member's session ends: deadlines, and how far they are known
* ``rules``, ``evaluate``           the findings that are true now; only reads
* ``shard``                         everything one partition of ``__consumer_offsets`` coordinates, event by event
* ``snapshot``                      a shard to bytes and back
* ``incidents``                     findings to openings, escalations and closings

Pure: the standard library only, no clock, no I/O. All instants are epoch milliseconds of the coordinator.
"""
