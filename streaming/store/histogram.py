"""Durations as counters: one row per bucket, so that `/metrics` costs the same however many were observed."""

from collections import Counter
from collections.abc import Iterable, Mapping

BUCKETS_MS = (50, 100, 250, 500, 750, 1_000, 1_500, 2_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)


def observe(name: str, durations_ms: Iterable[int]) -> Counter[str]:
    """Return counter increments for some durations; a negative one (clocks differ) counts as zero."""
    counts: Counter[str] = Counter()
    for duration_ms in durations_ms:
        bounded = max(0, duration_ms)
        bucket = next((str(limit) for limit in BUCKETS_MS if bounded <= limit), "inf")
        counts[f"{name}:le:{bucket}"] += 1
        counts[f"{name}:sum"] += bounded
    return counts


def buckets(name: str, counters: Mapping[str, int]) -> tuple[list[tuple[str, float]], float]:
    """Return Prometheus's cumulative buckets in seconds, and the sum in seconds, from stored counters."""
    result: list[tuple[str, float]] = []
    total = 0
    for limit in (*map(str, BUCKETS_MS), "inf"):
        total += counters.get(f"{name}:le:{limit}", 0)
        result.append(("+Inf" if limit == "inf" else str(int(limit) / 1_000), float(total)))
    return result, counters.get(f"{name}:sum", 0) / 1_000
