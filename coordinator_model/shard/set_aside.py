"""What is kept about a group when this monitor's own code fails on it: its id, type and incarnation, and the failure.

Nothing else of the replica can be trusted. The next record of the group begins a new replica (``admission``). Meanwhile
``rules/group_set_aside.py`` reports the failure.
"""

from coordinator_model.replica.group import GroupReplica
from coordinator_model.replica.notes import SetAside
from coordinator_model.shard.group_store import GroupStore


def failed_replica(
    group_store: GroupStore, group: str, error: Exception, at_ms: int, resolve_after_ms: int
) -> GroupReplica:
    """Return the replica that replaces one that failed at an instant.

    A failure within ``resolve_after_ms`` after the group resumed belongs to the same incident as the failure before.
    """
    set_aside = SetAside(at_ms, type(error).__name__, 1, None)
    try:
        before = group_store.replica(group)
    except Exception:  # noqa: BLE001 # its state cannot be decoded
        return GroupReplica(group, set_aside=set_aside)
    known = before.set_aside
    if known is not None and at_ms < (known.resumed_ms or at_ms) + resolve_after_ms:
        set_aside = set_aside._replace(since_ms=known.since_ms, failures=known.failures + 1)
    return GroupReplica(group, type=before.type, incarnation=before.incarnation, set_aside=set_aside)
