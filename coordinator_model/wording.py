"""How numbers and durations are written in texts for people: summaries, the timeline, the audit."""


def counted(number: int, noun: str) -> str:
    """Write `1 member`, `2,000 members`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def seconds(span_ms: int) -> str:
    """Write `0.25 s`, `41.3 s`, `1,800 s`."""
    return f"{span_ms / 1_000:.3g} s" if span_ms < 100_000 else f"{span_ms // 1_000:,} s"
