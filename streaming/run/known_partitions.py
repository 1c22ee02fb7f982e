"""The partition counts of topics as `run` last read them, in a file, so that a restart does not hide what was added."""

import json
from collections.abc import Mapping
from pathlib import Path

from coordinator_model.added_partitions import Added, AddedPartitions
from streaming.run.replaced_file import write_atomically

PARTITIONS_FILE = "partitions.json"


class KnownPartitions:
    """A file with the partition counts of topics, 0 for deleted ones, and the partitions last added to them."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> tuple[dict[str, int], dict[str, AddedPartitions]]:
        """Return what was kept; nothing if there is no file, or if it cannot be read."""
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            counts = {topic: int(count) for topic, count in kept["counts"].items()}
            return counts, {topic: AddedPartitions(*map(int, added)) for topic, added in kept["added"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}, {}

    def keep(self, counts: Mapping[str, int], added: Added) -> None:
        """Replace what was kept. What was added to a topic before it was deleted is left out."""
        kept = {"counts": dict(counts), "added": {topic: added[topic] for topic in added if counts.get(topic)}}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._file, json.dumps(kept))
