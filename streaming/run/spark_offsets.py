"""Up to which offsets Spark has read, or is about to read: in its progress, and in its checkpoint."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from streaming.run.topics import Offsets


def planned(checkpoint: Path, batch_id: int) -> Offsets:
    """Return the offsets up to which a batch reads; empty if they cannot be read.

    Spark writes them to its checkpoint before the batch begins.
    """
    try:
        _, _, *sources = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8").splitlines()
        return _offsets_of_all(sources)
    except (OSError, ValueError):
        return {}


def topics_read(progress: Mapping[str, Any]) -> Offsets:
    """Return the offsets up to which a query has read each topic in its checkpoint."""
    return _offsets_of_all(source["endOffset"] for source in progress["sources"])


def _offsets_of_all(sources: Iterable[Any]) -> Offsets:
    """Merge the offsets of all sources of a query."""
    return {topic: at for source in sources for topic, at in offsets_in(source).items()}


def read_all_from_ms(progress: dict[str, Any]) -> int | None:
    """Return when the batch began, if it read every record available by then; None if it left some for the next."""
    for source in progress["sources"]:
        end, latest = offsets_in(source["endOffset"]), offsets_in(source.get("latestOffset"))
        if any(
            end.get(topic, {}).get(number, -1) < last for topic, ends in latest.items() for number, last in ends.items()
        ):
            return None
    return int(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1_000)


def offsets_in(text: Any) -> Offsets:
    """Parse Spark's `endOffset`, which may be JSON text or already parsed; return nothing if it is not Kafka's."""
    found = json.loads(text) if isinstance(text, str) and text else text
    return {topic: at for topic, at in found.items() if isinstance(at, dict)} if isinstance(found, dict) else {}
