"""Lines of text about what happened to a group, for alerts, the API, the page and `describe`. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from coordinator_model.wording import counted, seconds

NAMES_SHOWN = 3


class TimelineEntry(NamedTuple):
    """One line about what happened at an instant."""

    at_ms: int
    text: str


def happened(
    generations: Iterable[Mapping[str, Any]], transitions: Iterable[Mapping[str, Any]], limit: int
) -> list[TimelineEntry]:
    """Return the newest `limit` generations and transitions, the oldest first."""
    told = [TimelineEntry(row["at_ms"], of_generation(row)) for row in generations]
    told += [TimelineEntry(row["at_ms"], of_transition(row)) for row in transitions]
    return sorted(told)[-limit:]


def of_generation(row: Mapping[str, Any]) -> str:
    """Return one line about a generation: what it changed."""
    parts = [f"generation {row['generation']}: {counted(row['members_total'], 'member')}"]
    parts += [f"{how} {listed(row[how], row[f'{how}_total'])}" for how in ("joined", "left", "returned") if row[how]]
    if moved := row.get("partitions_moved"):
        parts.append(f"{counted(moved, 'partition')} moved")
    if (took_ms := row.get("took_ms")) is not None:
        parts.append(f"rebalanced in {seconds(took_ms)}")
    if waited := row.get("waited_for"):
        parts.append(f"waited for {listed(waited, row['waited_for_total'])}")
    return ", ".join(parts)


def of_transition(row: Mapping[str, Any]) -> str:
    """Return one line about a transition of an incident."""
    how = f"{row['transition']} ({row['reason']})" if row.get("reason") else row["transition"]
    return f"{row['rule']} {how}, {row['severity']}: {row['summary']}"


def listed(names: Sequence[str], total: int) -> str:
    """Name the first few and count the rest."""
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"{shown} and {total - NAMES_SHOWN} more" if total > NAMES_SHOWN else shown


def ranges(partitions: Iterable[Sequence[Any]]) -> str:
    """Write partitions in short: `orders 0-3, 7; payments 1`."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(str(topic), []).append(number)
    return "; ".join(f"{topic} {runs(sorted(numbers))}" for topic, numbers in sorted(by_topic.items()))


def runs(numbers: Sequence[int]) -> str:
    """Write sorted numbers in short: `0-3, 7`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number <= found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
