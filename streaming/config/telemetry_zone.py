"""The time zone of dates in lines that a shipper sends from brokers' log files: `[kafka] telemetry_zone`.

A capture of shipped lines contains it in its cluster rows, so that a replay needs no configuration.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from coordinator_model.decode.source_row import CLUSTER, TELEMETRY, SourceRow
from coordinator_model.decode.telemetry.shipped import Zone, needs_zone, utc

FIELD: Final = "telemetry_zone"
_OFFSET = re.compile(r"([+-])(\d\d):?([0-5]\d)")
_STEP_MS = 900_000
"""Clocks are set forward or back at quarters of an hour."""


@dataclass(frozen=True)
class NamedZone:
    """A time zone given by its name, which can be pickled for any process of the job."""

    name: str

    def __call__(self, local_ms: int) -> Sequence[int]:
        """Return the instants at which clocks of the zone show this."""
        return [local_ms - offset_ms for offset_ms in _offsets_ms(self.name, local_ms // _STEP_MS)]


def zone_named(name: str | None) -> Zone:
    """Return the zone with a name, or UTC for None; raises ValueError if there is no such zone."""
    return utc if name is None or _tzinfo(name) is UTC else NamedZone(name)


@lru_cache
def _tzinfo(name: str) -> tzinfo:
    offset = _OFFSET.fullmatch(name)
    if name in ("UTC", "Z"):
        return UTC
    try:
        if offset is not None:
            minutes = int(offset[2]) * 60 + int(offset[3])
            return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f'"{name}" is no time zone known here: Europe/Berlin, +02:00 and UTC are') from error


@lru_cache(maxsize=4_096)
def _offsets_ms(name: str, step: int) -> tuple[int, ...]:
    """Return the UTC offset of clocks that show a time in this quarter of an hour; two if clocks are set back."""
    shown = datetime.fromtimestamp(0, UTC).replace(tzinfo=_tzinfo(name)) + timedelta(milliseconds=step * _STEP_MS)
    offsets = {shown.replace(fold=fold).utcoffset() or timedelta() for fold in (0, 1)}
    return tuple(sorted(offset // timedelta(milliseconds=1) for offset in offsets))


class CaptureZone:
    """The zone of a capture: the configured one, else the one in its cluster rows, else UTC.

    Rows come in any order, so rows that need the zone are held back until all others have been read.
    """

    def __init__(self, configured: str | None) -> None:
        self._zone = None if configured is None else zone_named(configured)

    def __call__(self, local_ms: int) -> Sequence[int]:
        """Return the instants at which clocks of the zone show this."""
        return (self._zone or utc)(local_ms)

    def rows(self, rows: Iterable[SourceRow]) -> Iterator[SourceRow]:
        """Yield all rows, in an order in which the zone is known when it is needed."""
        if self._zone is not None:
            yield from rows
            return
        waiting: list[SourceRow] = []
        named: str | None = None
        for row in rows:
            if row.source == TELEMETRY and needs_zone(row):
                waiting.append(row)
                continue
            named = _named_by(row) or named
            yield row
        self._zone = _known(named)
        yield from waiting


def _named_by(row: SourceRow) -> str | None:
    if row.source != CLUSTER or row.value is None or FIELD.encode() not in row.value:
        return None
    try:
        name = json.loads(row.value)[FIELD]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None  # the row is counted as unreadable when it is parsed
    return name if isinstance(name, str) else None


def _known(name: str | None) -> Zone:
    try:
        return zone_named(name)
    except ValueError:
        return utc
