"""The stateful stage: rows -> events -> `Shard.apply` -> outputs. Decides nothing.

A worker process keeps the shards it decoded; the nonce in the state tells whether its copy is the one that the last
committed batch left. After a move, a restart or a failed batch it is not, and the shard is decoded from the state, but
for the parts that are what the worker has decoded before.
Moves are frequent: Spark gives a task to any idle worker. So the nonce also names the start of the query: who moved
within it has nothing to show again.
"""

import base64
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from coordinator_model.shard import Shard, ShardSettings
from streaming.run.packing import (
    QUARANTINE_KEY,
    Payload,
    decoded_in,
    events_in,
    heartbeats_in,
    rejected_in,
    shard_of_key,
    unpack,
)
from streaming.run.state_cell import StateCell

STATE_SCHEMA = "version int, nonce long, hot string, memory string, index string, cold string"
"""Text, for Spark pickles bytes one by one, a fifth of all that the JVM did; ASCII is copied whole (decision 0007)."""
OUTPUT_SCHEMA = "key string, outputs string"

_NONCE_BITS = 32
_COLUMNS = pd.Index(["key", "outputs"])


class _Held(NamedTuple):
    """A shard in this worker, and the parts of its state: each as the model dumped it, and as text."""

    nonce: int
    shard: Shard
    parts: list[tuple[bytes, str]]


_held: dict[str, _Held] = {}
_NO_PARTS = [(b"", "")] * 4


@dataclass(frozen=True, slots=True)
class Operator:
    """What `applyInPandasWithState` calls for each key of each batch."""

    settings: ShardSettings
    query: int = field(default_factory=lambda: random.getrandbits(31))
    """Names this start of the query."""

    def __call__(self, key: tuple[str], rows: Iterable[pd.DataFrame], state: StateCell) -> Iterator[pd.DataFrame]:
        """Advance one key by the rows of a batch; yields at most one row, of all its outputs."""
        payloads = unpack(payload for frame in rows for payload in frame["payload"])
        if key[0] == QUARANTINE_KEY:
            outputs = [quarantine_output(self.settings.cluster, row) for row in rejected_in(payloads)]
        else:
            outputs = self._advance(key[0], payloads, state)
        if counts := decoded_in(payloads):
            outputs.append({"kind": "decoded", "cluster": self.settings.cluster, "counts": counts})
        if outputs:  # of an array, for a frame of lists takes four times as long to make
            yield pd.DataFrame(np.array([[key[0], json.dumps(outputs)]], dtype=object), columns=_COLUMNS, copy=False)

    def _advance(self, key: str, payloads: list[Payload], state: StateCell) -> list[dict[str, Any]]:
        shard, parts = self._shard(key, state)
        wall_ms = state.getCurrentProcessingTimeMs()
        outputs = shard.apply(events_in(payloads), heartbeats=heartbeats_in(payloads), wall_ms=wall_ms)
        nonce = self.query << _NONCE_BITS | random.getrandbits(_NONCE_BITS)  # an identity, not a secret
        version, *dumped = shard.dump()
        parts = [was if part is was[0] else (part, _text(part)) for part, was in zip(dumped, parts, strict=True)]
        state.update((version, nonce, *(text for _, text in parts)))
        _held[key] = _Held(nonce, shard, parts)
        return outputs

    def _shard(self, key: str, state: StateCell) -> tuple[Shard, list[tuple[bytes, str]]]:
        """Return the shard that the state is of, and the state's parts."""
        held = _held.pop(key, None)
        if not state.exists:
            return Shard.restore(shard_of_key(key), self.settings, None, key), _NO_PARTS
        version, nonce, *texts = state.get
        same_query = nonce >> _NONCE_BITS == self.query  # and so the same settings
        if held is not None and held.nonce == nonce and same_query:
            return held.shard, held.parts
        before, like = (held.parts, held.shard) if held is not None else (_NO_PARTS, None)
        parts = [
            was if text == was[1] else (base64.b64decode(text), text) for text, was in zip(texts, before, strict=True)
        ]
        kept = (version, *(part for part, _ in parts))
        return Shard.restore(shard_of_key(key), self.settings, kept, key, moved=same_query, like=like), parts


def _text(kept: bytes) -> str:
    return base64.b64encode(kept).decode("ascii")


def quarantine_output(cluster: str, row: Any) -> dict[str, Any]:
    """Turn an unreadable row into the output that the store keeps."""
    head = base64.b64encode(row.head).decode("ascii")
    return {"kind": "quarantine", "cluster": cluster, **row._asdict(), "head": head}
