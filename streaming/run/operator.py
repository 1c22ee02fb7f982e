"""The stateful stage: rows -> events -> `Shard.apply` -> outputs. It contains no rules.

It is called for a whole lane of shards at once (`lanes`). A worker process keeps the shards that it decoded; the nonce
in the state tells whether these copies are from the last committed batch. After a move to another worker, a restart or
a failed batch they are not. Then the shards are decoded from the state, except for the parts that the worker has
decoded before.
Moves are frequent: Spark gives a task to any idle worker. So the nonce also identifies the start of the query: shards
that moved within the same query need not send their views again.
"""

import base64
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from coordinator_model.shard import snapshot
from coordinator_model.shard.shard import Shard, ShardSettings
from streaming import json_text
from streaming.run.packing import (
    QUARANTINE_KEY,
    Payload,
    asked_in,
    commit_block,
    commits_in,
    decoded_in,
    events_in,
    heartbeats_in,
    not_kept_in,
    read_in,
    rejected_in,
    shard_of_key,
    unpack,
)
from streaming.run.read_ahead import Rows, rows_of
from streaming.run.state_cell import StateCell
from streaming.run.worker import without_collections

STATE_SCHEMA = "version int, nonce long, keys string, parts string"
"""A lane's keys, as JSON, and the parts of each key's state.

All as text, because Spark pickles bytes one by one, which took a fifth of the JVM's time; ASCII text is copied as a
whole (decision 0007).
"""
OUTPUT_SCHEMA = "key string, outputs string"

_NONCE_BITS = 32
_COLUMNS = pd.Index(["key", "outputs"])
_Parts = list[tuple[bytes, str]]
"""The parts of a shard's state: each as the model dumped it, and as text."""
_NO_PARTS: _Parts = [(b"", "")] * 6
_BETWEEN = " "  # separates parts; base64 contains no spaces


class _Kept(NamedTuple):
    shard: Shard
    parts: _Parts


class _Held(NamedTuple):
    """The shards of a lane that this worker keeps, by operator key."""

    nonce: int
    lane: dict[str, _Kept]


_held: dict[str, _Held] = {}


@dataclass(frozen=True, slots=True)
class Operator:
    """The function that `applyInPandasWithState` calls for each lane of each batch."""

    settings: ShardSettings
    query: int = field(default_factory=lambda: random.getrandbits(31))
    """Identifies this start of the query."""
    read_ahead: Path | None = None
    """The folder of the rows that a lane without state applies first (`streaming.run.read_ahead`)."""

    def __call__(self, key: tuple[str], rows: Iterable[pd.DataFrame], state: StateCell) -> Iterator[pd.DataFrame]:
        """Apply the rows of a batch to a lane; yield a row for each operator key that has outputs."""
        before = rows_of(self.read_ahead, key[0]) if self.read_ahead is not None and not state.exists else {}
        packed, said = _by_key(rows, before), dict[str, list[dict[str, Any]]]()
        if rejected := unpack(packed.pop(QUARANTINE_KEY, ())):
            quarantined = [quarantine_output(self.settings.cluster, row) for row in rejected_in(rejected)]
            said[QUARANTINE_KEY] = quarantined + self._of_no_key(rejected)
        if packed:
            with without_collections():
                said |= self._advance(key[0], packed, state)
        told = [(name, json_text.dumps(outputs)) for name, outputs in said.items() if outputs]
        if told:  # from an array: making a frame from lists takes four times as long
            yield pd.DataFrame(np.array(told, dtype=object), columns=_COLUMNS, copy=False)

    def _advance(self, name: str, packed: Rows, state: StateCell) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Advance the shards of a lane that got rows, and save all its shards; yield the outputs of each key."""
        lane, wall_ms = self._lane(name, state), state.getCurrentProcessingTimeMs()
        for key, rows in packed.items():
            shard, before = lane.get(key) or (Shard.restore(shard_of_key(key), self.settings, None, key), _NO_PARTS)
            payloads = unpack(rows)
            beats, read, commits = heartbeats_in(payloads), read_in(payloads), commits_in(payloads)
            outputs = shard.apply(
                events_in(payloads), heartbeats=beats, commits=map(commit_block, commits), wall_ms=wall_ms, read=read
            )
            lane[key] = _Kept(shard, _dumped(shard, before))
            committed = [self._committed(shard_of_key(key), block, wall_ms) for block in commits]
            yield key, outputs + committed + self._of_no_key(payloads)
        nonce = self.query << _NONCE_BITS | random.getrandbits(_NONCE_BITS)  # an identity, not a secret
        texts = _BETWEEN.join(text for _, parts in lane.values() for _, text in parts)
        state.update((snapshot.VERSION, nonce, json.dumps(list(lane)), texts))
        _held[name] = _Held(nonce, lane)

    def _lane(self, name: str, state: StateCell) -> dict[str, _Kept]:
        """Return the shards in the state, each with the parts of its state."""
        held = _held.pop(name, None)
        if not state.exists:
            return {}
        version, nonce, keys, texts = state.get
        same_query = nonce >> _NONCE_BITS == self.query  # and so the same settings
        if held is not None and held.nonce == nonce and same_query:
            return held.lane
        before = {} if held is None else held.lane
        parts = iter(texts.split(_BETWEEN))
        return {
            key: self._restored(key, version, islice(parts, len(_NO_PARTS)), before.get(key), views_kept=same_query)
            for key in json.loads(keys)
        }

    def _restored(
        self, key: str, version: int, texts: Iterable[str], before: _Kept | None, *, views_kept: bool
    ) -> _Kept:
        outdated, known = before or (None, _NO_PARTS)
        parts = [
            was if text == was[1] else (base64.b64decode(text), text) for text, was in zip(texts, known, strict=True)
        ]
        heartbeats, memory, index, groups, commits, commit_index = (part for part, _ in parts)
        kept = version, heartbeats, memory, index, groups, commits, commit_index
        shard = shard_of_key(key)
        restored = Shard.restore(shard, self.settings, kept, key, views_kept=views_kept, reuse_from=outdated)
        return _Kept(restored, parts if version == snapshot.VERSION else _dumped(restored, _NO_PARTS))

    def _committed(self, shard: int, block: bytes, wall_ms: int) -> dict[str, Any]:
        """Return the output that passes a block of offset commits to the sink, which judges lag."""
        head = {"kind": "commits", "cluster": self.settings.cluster, "shard": shard, "at_ms": wall_ms}
        return head | {"block": _text(block)}

    def _of_no_key(self, payloads: list[Payload]) -> list[dict[str, Any]]:
        """Return the outputs of these payloads that belong to no shard."""
        cluster, counts, asked = self.settings.cluster, decoded_in(payloads), asked_in(payloads)
        told: list[dict[str, Any]] = []
        if counts:
            told.append({"kind": "decoded", "cluster": cluster, "counts": counts})
        if not_kept := not_kept_in(payloads):
            told.append({"kind": "quarantined", "cluster": cluster, "counts": not_kept})
        if asked:
            told.append({"kind": "asked", "cluster": cluster, "keys": asked})
        return told


def _by_key(rows: Iterable[pd.DataFrame], before: Rows) -> Rows:
    """Group a lane's payloads by operator key, still packed, after those that come before them."""
    packed = dict(before)
    for frame in rows:
        for key, payload in zip(frame["key"], frame["payload"], strict=True):
            packed.setdefault(key, []).append(payload)
    return packed


def _dumped(shard: Shard, before: _Parts) -> _Parts:
    """Dump a shard; parts that are still the same objects keep their text."""
    _, *parts = shard.dump()
    return [was if part is was[0] else (part, _text(part)) for part, was in zip(parts, before, strict=True)]


def _text(kept: bytes) -> str:
    return base64.b64encode(kept).decode("ascii")


def quarantine_output(cluster: str, row: Any) -> dict[str, Any]:
    """Turn an unreadable row into the output that the store keeps."""
    head = base64.b64encode(row.head).decode("ascii")
    return {"kind": "quarantine", "cluster": cluster, **row._asdict(), "head": head}
