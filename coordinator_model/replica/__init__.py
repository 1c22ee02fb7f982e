"""The replica of one group. Nothing outside this package writes to it.

Read in this order:

1. ``group``, ``member`` and ``notes``: what is kept of a group. ``transitions``: its states.
2. ``replay``: an event is applied, if ``admission`` lets it in. ``advance``: time passes, the group is judged, its
   coordinator moves. All changes begin in one of these two.
3. The classic protocol: ``classic`` (records, Heartbeat, SyncGroup), ``join``, ``leave``. ``recorded``,
   ``answering_coordinator`` and ``rolled_back_replacement``: what happens if answers and records disagree.
4. KIP-848, share and streams groups: ``modern`` (records), ``member_heartbeat``. ``conversion``: a group changes its
   type.
5. ``session_timer``: when a member's session ends. ``removals``: why a member was removed.
6. ``client_report``, ``metrics_push``, ``idle_pushes`` and ``poll_end``: what clients report about their polls.
   ``coordinator_log``: what the coordinator's own log says.
7. The other modules are small. The first line of each says what it is for.
"""
