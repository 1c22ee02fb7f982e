"""Counts of what became of the records of ``__consumer_offsets``, by type, version and outcome.

Records are counted by the raw bytes of type and version, because a cold start reads hundreds of thousands a second.
The counts get their names once, at the end. The number of names is bounded: all unknown types and versions share one
name.
"""

from collections import Counter

from coordinator_model.decode.parse import RejectedRow
from coordinator_model.decode.records import Outcome, latest_version, type_name
from coordinator_model.decode.source_row import SourceRow
from coordinator_model.events import Event

UNKNOWN = "unknown"
_NUMBER_BYTES = 2


class DecodeCounts:
    """Counts records. ``take`` returns the counts by name and resets them."""

    def __init__(self) -> None:
        self._seen: dict[tuple[bytes, bytes, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._seen)

    def add(self, row: SourceRow, read: list[Event] | RejectedRow) -> None:
        """Count a record and what ``parse_row`` made of it."""
        value = row.value
        if isinstance(read, RejectedRow):
            outcome = read.reason.partition(":")[0]
        else:
            outcome = "tombstone" if value is None else "decoded"
        seen = ((row.key or b"")[:_NUMBER_BYTES], (value or b"")[:_NUMBER_BYTES], outcome)
        self._seen[seen] = self._seen.get(seen, 0) + 1

    def add_rows(self, type_: int, version: int | None, outcome: str, records: int) -> None:
        """Count records that were not parsed one by one; ``version`` None: they have no value."""
        value = b"" if version is None else version.to_bytes(_NUMBER_BYTES, "big", signed=True)
        seen = (type_.to_bytes(_NUMBER_BYTES, "big", signed=True), value, outcome)
        self._seen[seen] = self._seen.get(seen, 0) + records

    def take(self) -> dict[str, int]:
        """Return ``type:version:outcome`` -> records, as in ``OffsetCommit:3:decoded``."""
        named: Counter[str] = Counter()
        for (type_bytes, version_bytes, outcome), records in self._seen.items():
            type_ = _number(type_bytes)
            named[f"{_type(type_)}:{_version(type_, _number(version_bytes), outcome)}:{outcome}"] += records
        self._seen = {}
        return dict(named)


def _number(raw: bytes) -> int | None:
    return int.from_bytes(raw, "big", signed=True) if len(raw) == _NUMBER_BYTES else None


def _type(type_: int | None) -> str:
    return "" if type_ is None else type_name(type_) or UNKNOWN


def _version(type_: int | None, version: int | None, outcome: str) -> str:
    """Name a version. If the key could not be read, the first bytes of the value are not a version."""
    if type_ is None or version is None or outcome == Outcome.UNKNOWN_TYPE:
        return ""
    latest = latest_version(type_)
    return str(version) if latest is not None and 0 <= version <= latest else UNKNOWN
