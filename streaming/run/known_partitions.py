"""The partition counts of topics as `run` last read them, in a file, so that a restart does not hide what was added."""

import json
from collections.abc import Mapping
from pathlib import Path

from coordinator_model.added_partitions import Added, AddedPartitions
from streaming.run.replaced_file import write_atomically

PARTITIONS_FILE = "partitions.json"


class KnownPartitions:
    """A file with the partition counts of existing topics, and the partitions that were last added to them."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> tuple[dict[str, int], dict[str, AddedPartitions]]:
        """Return what was kept; nothing if there is no file, or if it cannot be read."""
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            return dict(kept["counts"]), {topic: AddedPartitions(*added) for topic, added in kept["added"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}, {}

    def keep(self, counts: Mapping[str, int], added: Added) -> None:
        """Replace what was kept. Deleted topics, whose count is 0, are left out."""
        existing = {topic: count for topic, count in counts.items() if count}
        kept = {"counts": existing, "added": {topic: added[topic] for topic in existing.keys() & added.keys()}}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._file, json.dumps(kept))
