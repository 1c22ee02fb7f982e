"""Why a member was removed: judged by what its removal proves (design, section 3: judged by consequence first).

The coordinator removes a member because it left, because its session expired, or because it missed a rebalance. No
answer and no record says which. What is seen is that a member is gone: an answer or a record no longer has it.

Read in this order:

1. ``departure`` and ``phases``: what is kept of a member that is gone, and of a join phase.
2. ``join_phase`` (a phase goes on), ``ended_phase`` (what is kept of it, once for all removals that it caused).
3. ``removal``: a member is found gone. ``leaves``: it had left.
4. ``judge``: once lines can no longer trail, the causes are asked in one order. Each is a pure function of a ``case``:
   ``coordinator_pause``, ``revocation``, ``sync_timeout``, ``phase_end``, ``join_timeout``, and last ``session_end``.
   ``replacement``: a static member whose successor came. They share ``phase_timeout``,
   ``removal_instant`` and ``retried_timer``.
5. ``uncertain``: when a missing line may explain a removal better than the timeout that is found.
"""
