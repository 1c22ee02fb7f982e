"""Which pages are false: those that the same life or capture does not cause if its telemetry is perfect.

A page has a counterpart if the monitor that read everything paged about the same at about the same time. Two rules
accept a page without a counterpart:

- ``telemetry-stalled``: no line came then.
- A client that fails again and again: its removals are reported one by one, and it does not matter which of them pages.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from coordinator_model.client import ShownClient
from coordinator_model.decode.source_row import TELEMETRY
from coordinator_model.rules.coordinator import TELEMETRY_STALLED
from coordinator_model.rules.registry import LASTING_RULES
from coordinator_model.states import Severity
from coordinator_model.thresholds import Thresholds
from tests.oracle.perturb import Arrival

NEAR_MS = 20_000
"""A page that comes earlier or later by at most this much is the same."""
SILENT_MS = Thresholds().telemetry_stalled_ms


class Page(NamedTuple):
    """An incident that paged, and from when to when it was open as a page."""

    rule: str
    group: str
    subject: str
    client: str
    from_ms: int
    until_ms: int | None
    summary: str

    def is_the_same(self, other: "Page") -> bool:
        """Tell whether another page is about the same, at about the same time."""
        of_one_client = self.client == other.client and {self.rule, other.rule} <= LASTING_RULES
        named = self.group == other.group and (
            (self.rule, self.subject) == (other.rule, other.subject) or of_one_client
        )
        ended = other.until_ms is not None and self.from_ms > other.until_ms + NEAR_MS
        return named and other.from_ms - NEAR_MS <= self.from_ms and not ended


def pages(told: Iterable[dict[str, Any]]) -> list[Page]:
    """Return the incidents that paged, of the incidents as `replay` prints them."""
    paged: dict[str, Page] = {}
    for line in told:
        known = paged.get(line["incident_id"])
        if line["transition"] == "closed":
            if known is not None:
                paged[line["incident_id"]] = known._replace(until_ms=line["at_ms"])
        elif line["severity"] == Severity.PAGE and known is None:
            paged[line["incident_id"]] = _page(line)
    return list(paged.values())


def _page(line: dict[str, Any]) -> Page:
    client = ShownClient.of(line)
    name = client.instance_id or f"{client.client_id} on {client.client_host}"
    return Page(line["rule"], line["group"], line["subject"], name, line["at_ms"], None, line["summary"])


def false_pages(
    told: Iterable[dict[str, Any]], reference: Iterable[dict[str, Any]], came: Iterable[Arrival]
) -> list[Page]:
    """Return the pages without a counterpart in what is told if telemetry is perfect, unless a rule accepts them."""
    right, silent = pages(reference), list(_silences(came))
    return [
        page
        for page in pages(told)
        if not any(page.is_the_same(other) for other in right)
        and not (page.rule == TELEMETRY_STALLED.id and any(a <= page.from_ms <= b for a, b in silent))
    ]


def _silences(came: Iterable[Arrival]) -> Iterator[tuple[int, int]]:
    """Yield from when to when no line of a broker was written that had come, if that is long."""
    last_ms: dict[tuple[str, int], int] = {}
    lines = [one for one in came if one.row.source == TELEMETRY]
    yield from ((row.timestamp_ms, at_ms) for at_ms, row in lines if at_ms - row.timestamp_ms >= SILENT_MS)
    for row in sorted((one.row for one in lines), key=lambda row: row.timestamp_ms):
        before_ms = last_ms.get((row.topic, row.partition), row.timestamp_ms)
        if row.timestamp_ms - before_ms >= SILENT_MS:
            yield before_ms, row.timestamp_ms
        last_ms[row.topic, row.partition] = row.timestamp_ms
    for at_ms in last_ms.values():
        yield at_ms + SILENT_MS, max(last_ms.values()) + SILENT_MS
