"""Topics that were recreated or cut short: their offsets begin again, and Spark would wait for the old ones to return.

Spark resumes a partition at the offset in its checkpoint, and forgets a partition that is no longer assigned. So such a
topic is left out of the query until a batch has ended without it; then it is read from its first offset.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streaming.run.replaced_file import write_atomically
from streaming.run.spark_offsets import topics_read
from streaming.run.topics import Offsets

TOPIC_IDS_FILE = "topics.json"


class TopicIds:
    """The ids of the topics that a checkpoint's offsets belong to, in a file in its folder."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def others(self, ids: Mapping[str, str]) -> set[str]:
        """Return the topics whose id differs from the one in the file."""
        known = self._known()
        return {topic for topic, topic_id in ids.items() if known.get(topic, topic_id) != topic_id}

    def keep(self, ids: Mapping[str, str]) -> None:
        """Record the ids of the topics that are read from now on."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._file, json.dumps(self._known() | dict(ids)))

    def _known(self) -> dict[str, str]:
        try:
            return dict(json.loads(self._file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return {}


def cut_short(progress: Mapping[str, Any], ends: Offsets) -> set[str]:
    """Return the topics that end before the offset up to which a query has read them."""
    return {
        topic
        for topic, partitions in topics_read(progress).items()
        if any(ends.get(topic, {}).get(partition, at) < at for partition, at in partitions.items())
    }
