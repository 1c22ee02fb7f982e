"""The operator keys that hold groups, in a file that the driver writes and the source stage reads.

Python workers of Spark import this, so it imports nothing that they do not need.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from streaming.run.replaced_file import write_atomically

LIVE_KEYS_FILE = "live-keys.json"


class LiveKeys:
    """The operator keys that hold groups, in a file: the source stage sends ticks only to these.

    A small cluster's groups are in few of the fifty shards, and if the key is the group, no other list of keys exists.
    A key gets its first ticks with its own first events (see `Packer.rows`), and from the next batch on through this
    file. The file outlives the process, so after a restart every watched group still gets ticks.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        known = read_live_keys(file)
        self._keys = frozenset(known or ())
        self._written = known is not None

    def update(self, groups_by_key: Mapping[str, int]) -> None:
        """Apply the number of groups that each key of a batch holds; write the file only if it changes."""
        empty = {key for key, groups in groups_by_key.items() if not groups}
        keys = (self._keys | groups_by_key.keys()) - empty
        if keys != self._keys or not self._written:
            write_atomically(self._file, json.dumps(sorted(keys)))
            self._keys, self._written = keys, True


def read_live_keys(file: Path) -> list[str] | None:
    """Return the operator keys in the file; None if it does not exist yet or cannot be read."""
    try:
        keys = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return keys if isinstance(keys, list) and all(isinstance(key, str) for key in keys) else None
