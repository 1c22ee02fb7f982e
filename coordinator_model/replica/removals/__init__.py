"""Why a member was removed: judged by what its removal proves (design, section 3: judged by consequence first).

The coordinator removes a member because it left, because its session expired, or because it missed a rebalance. No
answer and no record says which. They only show that the member is gone, by no longer listing it.

Read in this order:

1. ``departure`` and ``phases``: what is kept of a member that is gone, and of a join phase.
2. ``join_phase`` (a phase goes on), ``ended_phase`` (what is kept of it, once for all removals that it caused).
3. ``removal``: a member is found gone. ``leaves``: members that left.
4. ``judge``: once no late line can explain the removal, the causes are asked in a fixed order. Each is a pure function
   of a ``case``: ``coordinator_pause``, ``revocation``, ``sync_timeout``, ``phase_end``, ``join_timeout``, and last
   ``session_end``. ``replacement`` is about a static member whose successor came. These modules share
   ``phase_timeout``, ``removal_instant`` and ``retried_timer``.
5. ``uncertain``: when a missing line may explain a removal better than the timeout that is found.
"""
