"""When a group counts as settled: rules about how it is set up look at it then, and not at every step of a deploy.

Groups that become stable together, as all do when a run or a broker starts, are looked at one after the other: to take
ten thousand replicas apart in one batch would hold everything else up.
"""

import zlib

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.session_timer import JudgementContext
from coordinator_model.states import GroupType

ROUND_MS = 1_000
"""Up to whole seconds: what is due at one instant costs one look at what is due."""
JUDGED_TYPES = (GroupType.CLASSIC, GroupType.CONSUMER)


def settled_ms(replica: GroupReplica, context: JudgementContext) -> int | None:
    """Return the instant from which a stable group counts as settled, which may lie ahead; None: it is not stable."""
    begun_ms = quiet_since_ms(replica, context)
    if begun_ms is None:
        return None
    turn_ms = zlib.crc32(replica.group.encode()) % context.thresholds.settled_after_ms
    return -(-(begun_ms + context.thresholds.settled_after_ms + turn_ms) // ROUND_MS) * ROUND_MS


def quiet_since_ms(replica: GroupReplica, context: JudgementContext) -> int | None:
    """Return since when we have watched the group as it is now; None: it is not stable, or nobody is in it."""
    stable_ms = replica.stable_since_ms
    if stable_ms is None or not replica.members or replica.type not in JUDGED_TYPES or replica.deleted:
        return None
    return max(stable_ms, replica.generation_since_ms, context.live_from_ms)
