"""One shard: how it applies a batch, when it makes verdicts, what it keeps about its groups, and its state.

Read in this order:

1. ``shard``: the theory of operation, and the public class. ``groups``, ``shard_memory``, ``group_store``,
   ``heartbeat_table``, ``commit_times`` and ``agenda``: what it keeps.
2. ``batch`` and ``intake``: which events of a batch are applied now, and in which order.
3. ``event_loop``: applies them. ``fast_path`` takes nearly all heartbeats, ``broker_lines`` the other lines,
   ``group_events`` the events of groups.
4. ``schedule``: when something is judged. ``group_judgement``: a group is judged. ``broker_reports``: so are brokers.
5. ``view``, ``view_refresh`` and ``outputs``: what is reported.
6. ``snapshot``: the state that is kept between batches.
"""
