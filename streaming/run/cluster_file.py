"""The newest cluster metadata, in a file that the driver writes and the source stage reads."""

import json
from pathlib import Path
from typing import Any

import structlog

from streaming.run.replaced_file import write_atomically

log = structlog.get_logger(__name__)

CLUSTER_FILE = "cluster.json"


class ClusterFile:
    """The newest cluster row (docs/capture.md)."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, row: dict[str, Any]) -> None:
        """Replace the row in the file."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, json.dumps(row))
        except OSError as error:
            log.warning("the cluster metadata cannot be written", file=str(self._file), error=str(error))

    def read(self) -> bytes | None:
        """Return the row as JSON, or None if it cannot be read."""
        try:
            return self._file.read_bytes()
        except OSError:
            return None

    def keys(self) -> dict[int, str]:
        """Return the telemetry keys in the file by node id; empty if it cannot be read."""
        try:
            brokers = json.loads(self.read() or b"{}").get("brokers", {})
            return {int(node): broker["key"] for node, broker in brokers.items() if broker.get("key")}
        except (ValueError, TypeError, AttributeError, KeyError):
            return {}
