"""``judge_group``: how far a group is behind at an instant, partition by partition, and what is wrong with that.

Pure: all that is known is in the arguments, and what began when follows from them, so that a monitor that starts
afresh finds the same incidents.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from coordinator_model.lag import partition_stalled, topic_rules
from coordinator_model.lag.columns import columns_of
from coordinator_model.lag.partition import GroupFacts, PartitionLag
from coordinator_model.lag.scene import Scene, scene_of
from coordinator_model.lag.status import Status
from coordinator_model.rules.findings import Finding
from coordinator_model.states import GroupState, GroupType
from coordinator_model.thresholds import Thresholds

Output = dict[str, Any]
RULES: tuple[Callable[[Scene], Iterator[Finding]], ...] = (partition_stalled.findings, *topic_rules.RULES)
NO_SHARD = -1


def judge_group(
    facts: GroupFacts,
    partitions: Iterable[PartitionLag],
    now_ms: int,
    thresholds: Thresholds,
    history: Sequence[tuple[int, int]] = (),
    *,
    commits: int = 0,
) -> list[Output]:
    """Return a ``partitions`` output and a ``report`` of a group, at the instant of a round of end offsets.

    ``history``: the group's lag at earlier rounds, oldest first: ``history`` of the columns that were made last. It is
    that of the partitions that it owns, if it owns any.
    ``commits``: how many were counted, as the columns tell it.
    """
    scene = scene_of(facts, partitions, now_ms, thresholds, history)
    return [_partitions(scene, commits), _report(scene)]


def _partitions(scene: Scene, commits: int) -> Output:
    statuses = [row.status for row in scene.rows]
    return {
        **_head("partitions", scene),
        "lag": scene.total,
        "status": max(statuses, key=lambda status: status.rank, default=Status.UNKNOWN),
        "complete": _is_complete(scene),
        "columns": columns_of(scene, commits),
    }


def _is_complete(scene: Scene) -> bool:
    """Tell whether the lag of each partition with a commit is known; share groups commit elsewhere."""
    known = all(row.lag is not None for row in scene.rows if row.p.commits)
    return bool(scene.rows) and known and scene.facts.type != GroupType.SHARE


def _report(scene: Scene) -> Output:
    """Say all that is held of the group's lag.

    ``pending``: which incidents have not ended though they are not found, None: none has, for nothing is known.
    ``owners``: who has partitions, so that what is said of others is over; None: that is not known, or there are none.
    """
    findings = chain.from_iterable(rule(scene) for rule in RULES)
    known = scene.is_known
    return {
        **_head("report", scene),
        "judged": "lag",
        "view": None,
        "findings": [{"cluster": scene.facts.cluster, **finding.as_dict()} for finding in findings],
        "deleted": False,
        "pending": [*partition_stalled.pending(scene), *topic_rules.pending(scene)] if known else None,
        "owners": sorted(_owners(scene)) if known and not scene.instant.is_simple else None,
    }


def _owners(scene: Scene) -> set[str]:
    owners = (row.p.owner for row in scene.rows)
    if scene.facts.state != GroupState.STABLE:
        return set()
    return {owner.member_id for owner in owners if owner is not None and owner.liveness != "violated"}


def _head(kind: str, scene: Scene) -> Output:
    facts = scene.facts
    return {
        "kind": kind,
        "cluster": facts.cluster,
        "shard": NO_SHARD,
        "group": facts.group,
        "at_ms": scene.now_ms,
    }
