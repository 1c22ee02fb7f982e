"""When a group counts as settled. The rules about its setup judge it then, not at every step of a deploy.

When ``run`` or a broker starts, all groups become stable together. They are judged one after the other, because ten
thousand replicas in one batch would delay everything else.
"""

import zlib

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.judgement_context import JudgementContext
from coordinator_model.states import GroupType

ROUND_MS = 1_000
"""Instants are rounded up to whole seconds: everything that is due at one instant is handled together."""
JUDGED_TYPES = (GroupType.CLASSIC, GroupType.CONSUMER)


def settled_ms(replica: GroupReplica, context: JudgementContext) -> int | None:
    """Return when a stable group counts as settled, which may be in the future; None: it is not stable."""
    begun_ms = quiet_since_ms(replica, context)
    if begun_ms is None:
        return None
    turn_ms = zlib.crc32(replica.group.encode()) % context.thresholds.settled_after_ms
    return -(-(begun_ms + context.thresholds.settled_after_ms + turn_ms) // ROUND_MS) * ROUND_MS


def quiet_since_ms(replica: GroupReplica, context: JudgementContext) -> int | None:
    """Return since when the group has been as it is now, and watched; None: it is not stable, or has no members."""
    stable_ms = replica.stable_since_ms
    if stable_ms is None or not replica.members or replica.type not in JUDGED_TYPES or replica.deleted:
        return None
    return max(stable_ms, replica.generation_since_ms, context.live_from_ms)
