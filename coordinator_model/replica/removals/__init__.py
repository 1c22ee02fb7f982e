"""Why a member was removed: judged by what its removal proves (design, section 3: judged by consequence first).

The coordinator removes a member because it left, because its session expired, or because it missed a rebalance. Nobody
outside is told which. What is seen is that a member is gone: by an answer or a record that no longer has it.

Read in this order: ``departures`` (a member is found gone), ``leaves`` (it left), ``join_phase`` and ``ended_phase``
(the rebalance in which it went), ``judge`` (the causes, in the order in which they are asked) and ``uncertain`` (when
none of them may be reported).
"""
