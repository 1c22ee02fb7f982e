"""Why a member was removed. The removal is seen first; its cause is inferred from it and what was seen before.

The coordinator removes a member because it left, because its session expired, or because it missed a rebalance. The
answer to a LeaveGroup shows a leave. No answer and no record tells the other two apart: they only show that the member
is gone, by no longer listing it.

``docs/glossary.md`` explains the words that are not Kafka's, such as *timer reset*, *progress* and *grace*. Numbers in
the texts are Kafka's error codes: 15 COORDINATOR_NOT_AVAILABLE, 22 ILLEGAL_GENERATION, 25 UNKNOWN_MEMBER_ID,
27 REBALANCE_IN_PROGRESS, 79 MEMBER_ID_REQUIRED, 82 FENCED_INSTANCE_ID. A member *was heard* when the coordinator
accepted one of its heartbeats.

Read in this order:

1. ``departure`` and ``phases``: what is kept of a member that is gone, and of a join phase.
2. ``join_phase``: a phase begins, goes on and ends. ``ended_phase``: what is kept of it for the removals in it.
3. ``removal``: a member is found gone. ``leaves``: members that left.
4. ``judge``: once no late line can explain the removal, the causes are asked in a fixed order. Each is a pure function
   of a ``case``: ``coordinator_pause``, ``revocation``, ``sync_timeout``, ``phase_end``, ``join_timeout``, and last
   ``session_end``. ``replacement`` is about a static member whose successor came. These modules share
   ``phase_timeout``, ``removal_instant`` and ``retried_timer``. ``together``: what removals that are judged together
   share, so that a thousand of them do not cost a million steps.
5. ``uncertain``: when a missing line may explain a removal better than the timeout that is found.
"""
