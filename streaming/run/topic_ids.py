"""Topics that were recreated or cut short: their offsets begin again, and Spark would wait for them to come back.

Spark goes on with a partition where its checkpoint says, and forgets a partition that it is not assigned any more. So a
topic that begins again is left out of the query until a batch has ended without it; then it is read from its first
offset.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streaming.run.catch_up import offsets_in
from streaming.run.layout import write_atomically
from streaming.run.topics import Offsets

TOPIC_IDS_FILE = "topics.json"


class TopicIds:
    """The ids of the topics that a checkpoint's offsets are of, in a file beside it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def others(self, ids: Mapping[str, str]) -> set[str]:
        """Return the topics that have another id than the checkpoint's."""
        known = self._known()
        return {topic for topic, topic_id in ids.items() if known.get(topic, topic_id) != topic_id}

    def keep(self, ids: Mapping[str, str]) -> None:
        """Note the ids of the topics that are read from now on."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._file, json.dumps(self._known() | dict(ids)))

    def _known(self) -> dict[str, str]:
        try:
            return dict(json.loads(self._file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return {}


def topics_read(progress: Mapping[str, Any]) -> Offsets:
    """Return up to where a query has read each topic that its checkpoint knows."""
    return {topic: at for source in progress["sources"] for topic, at in offsets_in(source["endOffset"]).items()}


def cut_short(progress: Mapping[str, Any], ends: Offsets) -> set[str]:
    """Return the topics that end before where a query has read them."""
    return {
        topic
        for topic, partitions in topics_read(progress).items()
        if any(ends.get(topic, {}).get(partition, at) < at for partition, at in partitions.items())
    }
