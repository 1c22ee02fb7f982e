"""Reports and findings of `serve` itself, in the format of a shard's: they are judged and sent like any other."""

from collections.abc import Sequence
from typing import Any

from coordinator_model.group_report import GroupReport

OWN_HOLDER = "serve"


def own_report(cluster: str, findings: Sequence[dict[str, Any]], now_ms: int) -> GroupReport:
    """Make a report about a cluster as a whole."""
    return GroupReport(cluster=cluster, group="", at_ms=now_ms, findings=list(findings), holder=OWN_HOLDER)


def own_finding(rule: str, cluster: str, subject: str, **facts: Any) -> dict[str, Any]:
    """Make a finding without group and member; `facts`: severity, opened_ms, at_ms, summary, detail."""
    nobody = ("member_id", "instance_id", "client_id", "client_host", "client_software", "connection", "deadline_ms")
    return {
        "rule": rule,
        "cluster": cluster,
        "group": "",
        "subject": subject,
        "incarnation": "",
        **dict.fromkeys(nobody),
        "generation": -1,
        "broker": "",
        "evidence": "observed",
        "cause": "unknown",
        "partitions": [],
        "closed_reason": None,
        "closed_ms": None,
        **facts,
    }
