"""Which telemetry of clusters and brokers is read, and how late it arrives. The page shows one line per cluster."""

from collections.abc import Iterator, Mapping
from typing import Any

from coordinator_model.wording import counted
from streaming.store import Store
from streaming.tiers import COORDINATOR_LOG, RECORDS_ONLY, REQUEST_LOG

_COORDINATOR_LINES = "ingest:CoordinatorLine"
"""Counts lines of the coordinators' own log. They make no tick, so the progress of brokers does not show them."""


def coverage(store: Store, cluster: str | None = None) -> dict[str, Any]:
    """Return the blind windows, the brokers whose telemetry is read, and the tier of each cluster."""
    read = [row for row in store.read.brokers() if cluster in (None, row.cluster)]
    brokers = [
        {
            "cluster": row.cluster,
            "broker": row.broker,
            "tier": REQUEST_LOG,
            "newest_line_ms": row.progress_ms,
            "delay_ms": row.delay_ms,
            "covered": bool(row.covered),
        }
        for row in sorted(read)
    ]
    return {
        "windows": store.read.blind_windows(cluster),
        "brokers": brokers,
        "clusters": _clusters(store, cluster, {row.cluster for row in read}),
    }


def _clusters(store: Store, cluster: str | None, logged: set[str]) -> list[dict[str, Any]]:
    totals: dict[str, dict[str, Any]] = {}
    told = {name for name, counters in store.read.counters().items() if counters.get(_COORDINATOR_LINES)}
    for row in store.read.group_totals():
        if cluster not in (None, row.cluster):
            continue
        lesser = COORDINATOR_LOG if row.cluster in told else RECORDS_ONLY
        tier = REQUEST_LOG if row.cluster in logged else lesser
        known = totals.setdefault(
            row.cluster, {"cluster": row.cluster, "tier": tier, "groups": 0, "members": 0, "unknown": 0}
        )
        for name in ("groups", "members", "unknown"):
            known[name] += int(getattr(row, name) or 0)
    return [totals[name] for name in sorted(totals)]


def in_words(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line for each cluster: what is read of it, and for how many members liveness is unknown."""
    for known in found["clusters"]:
        delays = [row["delay_ms"] for row in found["brokers"] if row["cluster"] == known["cluster"]]
        late = max((delay_ms for delay_ms in delays if delay_ms is not None), default=None)
        delay = "" if late is None else f", at most {late / 1000:.1f} s late"
        read = _read(known["tier"], len(delays))
        yield f"{known['cluster']}: {read}{delay}; {known['unknown']} of {known['members']} members of unknown liveness"


def _read(tier: int, brokers: int) -> str:
    if tier == RECORDS_ONLY:
        return "records only (tier 0)"
    if tier == COORDINATOR_LOG:
        return "records and the coordinators' INFO lines (tier 1), whose loss cannot be told from silence"
    return f"records and the request log of {counted(brokers, 'broker')} (tier 2)"
