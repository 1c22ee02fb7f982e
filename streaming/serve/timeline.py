"""The geometry of the two charts on a group's page: what happened, and how much time each member has left. Pure.

A template draws them as SVG and escapes the texts. Coordinates are on a plane `WIDTH` wide; they are not pixels.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from streaming.serve.events import of_generation

WIDTH: Final = 1_000
ROW: Final = 22
LABEL: Final = 220
INCIDENT_ROWS: Final = 12
MEMBER_ROWS: Final = 40
_SETTLED: Final = frozenset({"Stable", "Empty", "Dead"})
_NO_TIMEOUT_MS: Final = 60_000
_LEAST_BAR: Final = 2.0
_GAP: Final = 3  # between a line and the text beside it
_DIGIT: Final = 7  # the greatest width of a digit, at the font size of the style sheet


class Mark(NamedTuple):
    """An instant, with its text to the right, or to the left if the text `ends` there."""

    x: float
    text: str
    title: str
    ends: bool = False


class Bar(NamedTuple):
    """A span of time, drawn at height `y`; `kind` is a class of the style sheet."""

    x: float
    width: float
    y: int
    kind: str
    label: str
    title: str


class Timeline(NamedTuple):
    """Generations as marks, rebalances and incidents as bars, and the ends of the axis."""

    from_ms: int
    to_ms: int
    height: int
    generations: list[Mark]
    bars: list[Bar]


class Heartbeats(NamedTuple):
    """One bar per member, from its last heartbeat to its deadline. `now_x`: the instant at which the group was seen."""

    from_ms: int
    to_ms: int
    height: int
    now_x: float
    now_ends: bool
    bars: list[Bar]
    hidden: int


def timeline(
    group: Mapping[str, Any],
    generations: Iterable[Mapping[str, Any]],
    incidents: Iterable[Mapping[str, Any]],
    window_ms: int,
) -> Timeline:
    """Return the chart of the last `window_ms` before the group was seen."""
    to_ms = group["at_ms"]
    from_ms = to_ms - window_ms
    axis = _Axis(from_ms, to_ms)
    drawn = [row for row in generations if row["at_ms"] >= from_ms]
    marks = [
        Mark(axis.x(row["at_ms"]), str(row["generation"]), f"generation {row['generation']}: {row['cause']}")
        for row in drawn
    ]
    since_ms = group.get("state_since_ms")
    bars = [
        _span(axis, row["began_ms"], row["at_ms"], 1, "rebalance", "", of_generation(row))
        for row in drawn
        if row.get("took_ms") is not None
    ]
    if group["state"] in _SETTLED:
        bars[:1] = [bar._replace(label="rebalances") for bar in bars[:1]]
    elif since_ms is not None:
        bars.append(_span(axis, since_ms, to_ms, 1, "rebalance", group["state"], f"{group['state']} since then"))
    seen = [i for i in incidents if (i["closed_ms"] or to_ms) >= from_ms and i["opened_ms"] <= to_ms]
    for number, incident in enumerate(seen[:INCIDENT_ROWS]):
        title = f"{incident['rule']}: {incident['summary']}"
        end_ms = incident["closed_ms"] or to_ms
        bars.append(
            _span(axis, incident["opened_ms"], end_ms, number + 2, incident["severity"], incident["rule"], title)
        )
    rows = max((bar.y for bar in bars), default=ROW) + 2 * ROW
    return Timeline(from_ms, to_ms, rows, _without_overlaps(marks), bars)


def _without_overlaps(marks: Iterable[Mark]) -> list[Mark]:
    """Write a text beside a mark only if there is room. Newer marks, further to the right, are placed first."""
    placed, free_to = [], float(WIDTH)
    for mark in sorted(marks, key=lambda mark: mark.x, reverse=True):
        width = _GAP + _DIGIT * len(mark.text)
        if mark.x + width <= free_to:
            free_to = mark.x
            placed.append(mark)
        elif mark.x <= free_to and mark.x - width >= LABEL:
            free_to = mark.x - width
            placed.append(mark._replace(ends=True))
        else:
            placed.append(mark._replace(text=""))
    return placed


def heartbeats(group: Mapping[str, Any]) -> Heartbeats:
    """Return the chart of heartbeats, with the members with the least headroom first."""
    now_ms = group["at_ms"]
    heard = [member for member in group["members"] if member.get("last_heartbeat_ms") is not None]
    heard.sort(key=lambda member: _headroom(member, "heartbeat_headroom"))
    shown = heard[:MEMBER_ROWS]
    spans = [(m["last_heartbeat_ms"], m["last_heartbeat_ms"] + (m["session_timeout_ms"] or 0)) for m in shown]
    from_ms = max(now_ms - 10 * _NO_TIMEOUT_MS, min((begin for begin, _ in spans), default=now_ms - _NO_TIMEOUT_MS))
    to_ms = min(now_ms + 10 * _NO_TIMEOUT_MS, max((end for _, end in spans), default=now_ms))
    axis = _Axis(from_ms, max(to_ms, now_ms, from_ms + 1))
    bars = [
        _span(axis, begin, end, number, str(member["liveness"]), _name(member), f"until {end - now_ms} ms from now")
        for number, (member, (begin, end)) in enumerate(zip(shown, spans, strict=True))
    ]
    now_x = axis.x(now_ms)
    now_ends = now_x > (LABEL + WIDTH) / 2
    hidden = len(heard) - len(shown)
    return Heartbeats(axis.from_ms, axis.to_ms, ROW * (len(bars) + 1), now_x, now_ends, bars, hidden)


def troubled_first(group: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Sort a group's members: first the violated, then those its rebalance waits for; within each by least headroom."""
    awaited = set((group.get("rebalance") or {}).get("waiting_for") or ())

    def trouble(member: Mapping[str, Any]) -> int:
        return 0 if member["liveness"] == "violated" else 1 if member["member_id"] in awaited else 2

    return sorted(group["members"], key=lambda m: (trouble(m), _headroom(m, "heartbeat_headroom", "poll_headroom")))


def waited_for(incidents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the members that a rebalance waits for, as far as open incidents name them."""
    return [name for i in incidents for name in (i.get("detail") or {}).get("waiting_for") or ()]


class _Axis(NamedTuple):
    from_ms: int
    to_ms: int

    def x(self, at_ms: int) -> float:
        """Return the coordinate of an instant, within the ends of the axis."""
        share = (at_ms - self.from_ms) / (self.to_ms - self.from_ms)
        return round(LABEL + (WIDTH - LABEL) * max(0.0, min(1.0, share)), 1)


def _span(axis: _Axis, begin_ms: int, end_ms: int, row: int, kind: str, label: str, title: str) -> Bar:
    x = min(axis.x(begin_ms), WIDTH - _LEAST_BAR)  # so that a span that has just begun is visible, too
    return Bar(x, max(_LEAST_BAR, round(axis.x(end_ms) - x, 1)), row * ROW, kind, label, title)


def _headroom(member: Mapping[str, Any], *names: str) -> tuple[float, str]:
    """Return a sort key: the least of these headrooms; one that is not known counts as 1."""
    return (min((1.0 if (left := member.get(name)) is None else left) for name in names), member["member_id"])


def _name(member: Mapping[str, Any]) -> str:
    return str(member["instance_id"] or member["member_id"])
