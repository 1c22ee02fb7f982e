"""``telemetry-uncovered``: members whose heartbeats no source shows, though their coordinator's telemetry flows.

Their sessions can only be judged by consequence; a broker whose snippet filters heartbeats out looks like this.
"""

from coordinator_model.findings import NOTHING, Finding, Verdict, about_group
from coordinator_model.liveness import Scene, session_timeout_ms
from coordinator_model.replica.group import GroupReplica
from coordinator_model.rules.settled import quiet_since_ms
from coordinator_model.states import Cause, Evidence, Severity

TELEMETRY_UNCOVERED = "telemetry-uncovered"
MAX_NAMED = 64


def judge(replica: GroupReplica, scene: Scene) -> Verdict:
    """Judge the members that have not been heard for longer than their session could last."""
    since_ms = quiet_since_ms(replica, scene)
    unheard = [m for m in replica.members.values() if m.last_heartbeat_ms is None]
    if since_ms is None or not unheard or scene.waiting or scene.stalled:
        return NOTHING
    longest_ms = max(session_timeout_ms(member, scene) or 0 for member in unheard)
    begun_ms = max(since_ms, scene.covered_since_ms)
    due_ms = begun_ms + max(scene.thresholds.settled_after_ms, longest_ms)
    if scene.progress_ms < due_ms:
        return Verdict(None, due_ms)
    finding = Finding(
        rule=TELEMETRY_UNCOVERED,
        severity=Severity.INFO,
        opened_ms=begun_ms,
        at_ms=due_ms,
        evidence=Evidence.OBSERVED,
        cause=Cause.UNKNOWN,
        summary=f"no heartbeat of {len(unheard)} of {replica.group}'s {len(replica.members)} members has been seen:"
        " their sessions are judged by consequence only",
        detail={"members": sorted(m.member_id for m in unheard)[:MAX_NAMED], "total": len(unheard)},
        **about_group(replica, scene),
    )
    return Verdict(finding, None)
