"""Offset commits decoded by columns, because nearly all records of the offsets topic are offset commits.

A commit is *regular* if its bytes have one of the layouts in this module (Kafka's ``OffsetCommitKey.json`` and
``OffsetCommitValue.json``). This is checked for all rows at once, on Arrow's buffers. The committed values are read
only from the rows that a block keeps: the newest of each partition and, if commits are signs of life, the first and the
newest in each ``CELL_MS`` between two irregular records. All other rows, malformed or of a kind unknown here, are left
to the core's decoder, which is the reference: a test compares this module with it.

Of the irregular rows older than the history that rules look at, only the newest of each key is left to the decoder: the
log cleaner would remove the earlier ones, and a coordinator that loads the log may never see them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_model.commit_block import LEAST_OFFSET, METADATA_CHARACTERS, NO_OFFSET, CommitBlock, group_in
from coordinator_model.decode.telemetry.fields import LATEST_MS
from coordinator_model.decode.wire import MAX_STRING_BYTES, java_text
from streaming.run.packing import Routing
from streaming.run.partition_rows import Flags, Indexes, PartitionRows

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
CELL_MS = 100
"""Commits of a partition within the same cell of this length count as one sign of life: two of them are kept."""
TOMBSTONE = -1
"""The version of a row without a value."""
IRREGULAR = -2
SUPERSEDED = "superseded"
_TYPE_BYTES = 2
_EPOCH = 10
"""The position of the leader epoch in values that have one, and of the metadata's length in those without."""
_MAX_CHARACTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Layout:
    """A value's layout: version, offset, leader epoch if any, metadata length and bytes, commit instant, the rest."""

    has_epoch: bool
    is_flexible: bool = False
    after_instant: int = 0
    """The number of bytes between the commit instant and the end, or the tagged fields."""

    @property
    def length_at(self) -> int:
        """The position of the metadata's length."""
        return _EPOCH + 4 * self.has_epoch


_LAYOUTS = (
    _Layout(has_epoch=False),
    _Layout(has_epoch=False, after_instant=8),
    _Layout(has_epoch=False),
    _Layout(has_epoch=True),
    _Layout(has_epoch=True, is_flexible=True),
)
"""Indexed by version."""
_NO_TAGS, _TOPIC_ID = bytes([0]), bytes([1, 0, 16])
"""The start of the tagged fields that end a flexible value: there are none, or the 16 bytes of the topic id follow."""
_ID_BYTES = 16
_NO_ID = bytes(_ID_BYTES)


class _Texts(NamedTuple):
    """A column of byte strings: all their bytes, and the start and length of each."""

    data: Bytes
    starts: Indexes
    lengths: Indexes

    @classmethod
    def of(cls, column: pa.BinaryArray) -> "_Texts":
        if not len(column):
            return cls(np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))
        _, stops, data = column.buffers()
        places = np.frombuffer(stops, np.int32)[column.offset :][: len(column) + 1].astype(np.int64)
        return cls(np.frombuffer(data or b"", np.uint8), places[:-1], np.diff(places))

    def take(self, rows: Indexes | Flags) -> "_Texts":
        return _Texts(self.data, self.starts[rows], self.lengths[rows])

    def number(self, at: Any, size: int) -> Indexes:
        """Read a signed big-endian number from each row; every row must be long enough."""
        from_each_byte = np.ndarray(max(0, len(self.data) - size + 1), f">i{size}", self.data, strides=(1,))
        numbers: Indexes = from_each_byte[self.starts + at].astype(np.int64)
        return numbers

    def has(self, at: Any, expected: bytes) -> Flags:
        """Tell for each row whether it has these bytes at that position; every row must be long enough."""
        places = (self.starts + at)[:, None] + np.arange(len(expected))
        equal: Flags = (self.data[places] == np.frombuffer(expected, np.uint8)).all(axis=1)
        return equal

    def text(self, row: int, at: int, size: int) -> bytes:
        start = int(self.starts[row]) + at
        return self.data[start : start + size].tobytes()


class Counted(NamedTuple):
    """The number of records of one kind that are not parsed one by one, in the terms of `DecodeCounts`."""

    key_type: int
    version: int | None
    """None: the records have no value."""
    outcome: str
    rows: int


class DecodedCommits(NamedTuple):
    """The result of decoding runs of the offsets topic; `others` are each run's rows that are left to the decoder."""

    blocks: list[tuple[str, CommitBlock]]
    counts: list[Counted]
    others: list[tuple[PartitionRows, Indexes]]


class CommitColumns:
    """Decodes runs of the offsets topic.

    From `live_from_ms` on, commits are signs of life. Before `history_from_ms`, only the newest record of a key counts.
    """

    def __init__(self, routing: Routing, live_from_ms: int, history_from_ms: int = 0) -> None:
        self._routing, self._live_from_ms, self._history_from_ms = routing, live_from_ms, history_from_ms

    def decode(self, runs: Sequence[PartitionRows]) -> DecodedCommits:
        """Decode runs; the rows of each run are in offset order."""
        rows = _Rows.of(sorted(runs, key=lambda run: (run.partition, run.offsets[0])))
        keys = _Keys.of(rows)
        values = _Values.of(rows)
        in_range = (rows.instants_ms >= 0) & (rows.instants_ms < LATEST_MS)
        types = keys.types[keys.codes]
        # With the oldest type of key, only version 0 of the value exists.
        fits = (types == 1) | ((types == 0) & (values.versions <= 0))
        regular = fits & (values.versions != IRREGULAR) & in_range
        found = np.flatnonzero(regular)
        blocks = list(self._blocks(rows, keys, values, found, np.cumsum(~regular))) if len(found) else []
        counts = _counted(types[found], values.versions[found])
        old = np.flatnonzero(~regular & in_range & (rows.instants_ms < self._history_from_ms))
        superseded = _superseded(old, rows, keys)
        left = ~regular
        left[superseded] = False
        return DecodedCommits(blocks, counts + _count_superseded(superseded, rows), rows.others(left))

    def _blocks(
        self, rows: "_Rows", keys: "_Keys", values: "_Values", found: Indexes, segments: Indexes
    ) -> Iterator[tuple[str, CommitBlock]]:
        """Make one block per operator key of the rows that are kept."""
        places = _places(keys, rows.partitions[found], keys.codes[found])
        chosen, counts = self._chosen(places, rows.instants_ms[found], segments[found])
        at = found[chosen]
        names = keys.names(at)
        codes, operator_keys = self._operator_keys(names, rows.partitions[at])
        columns, numbers = values.columns(at), (rows.offsets[at], rows.instants_ms[at])
        order = np.argsort(codes, kind="stable")
        ends = (np.flatnonzero(np.diff(codes[order])) + 1).tolist()
        for start, end in pairwise([0, *ends, len(order)]):
            rows_of = order[start:end]
            listed = rows_of.tolist()
            block = (
                tuple(map(names.__getitem__, listed)),
                *(column[rows_of].tobytes() for column in (*numbers, *columns.numbers, counts)),
                tuple(map(columns.topic_ids.__getitem__, listed)),
                {n: columns.metadata[row] for n, row in enumerate(listed) if row in columns.metadata},
            )
            yield operator_keys[codes[rows_of[0]]], CommitBlock.of_tuple(block)

    def _operator_keys(self, names: list[bytes], partitions: Indexes) -> tuple[Indexes, dict[int, str]]:
        """Return the code of each row's operator key, and the keys by code."""
        if self._routing.is_by_shard:
            return partitions, {n: self._routing.key_of("", n) for n in np.unique(partitions).tolist()}
        named = zip(names, partitions.tolist(), strict=True)
        keys = [self._routing.key_of(group_in(name), partition) for name, partition in named]
        codes: dict[str, int] = {}
        of_rows = np.array([codes.setdefault(key, len(codes)) for key in keys], np.int64)
        return of_rows, {code: key for key, code in codes.items()}

    def _chosen(self, places: Indexes, instants_ms: Indexes, segments: Indexes) -> tuple[Indexes, Indexes]:
        """Return the rows to keep, in their order, and how many commits each stands for.

        The rows of a partition that are too old to be signs of life form one cell, of which only the newest is kept.
        """
        live = instants_ms >= self._live_from_ms
        if not live.any():
            newest = np.full(places.max() + 1, -1)
            newest[places] = np.arange(len(places))  # the last of equal places wins
            chosen = np.sort(newest[newest >= 0])
            return chosen, np.bincount(places)[places[chosen]]
        cells = (np.where(live, instants_ms // CELL_MS, -1), np.where(live, segments, -1), places)
        order = np.lexsort(cells)
        starts = np.flatnonzero(np.any([np.diff(cell[order], prepend=-2) != 0 for cell in cells], axis=0))
        ends = np.append(starts[1:], len(order))
        first, newest, sizes = order[starts], order[ends - 1], ends - starts
        two = live[first] & (sizes > 1)
        chosen = np.concatenate([first[two], newest])
        counts = np.concatenate([np.ones(int(two.sum()), np.int64), sizes - two])
        in_order = np.argsort(chosen)
        return chosen[in_order], counts[in_order]


class _Rows(NamedTuple):
    """Concatenated runs, and where each begins."""

    runs: Sequence[PartitionRows]
    starts: list[int]
    partitions: Indexes
    offsets: Indexes
    instants_ms: Indexes
    keys: pa.BinaryArray
    values: pa.BinaryArray

    @classmethod
    def of(cls, runs: Sequence[PartitionRows]) -> "_Rows":
        sizes = [len(run.offsets) for run in runs]
        return cls(
            runs,
            np.cumsum([0, *sizes]).tolist(),
            np.repeat([run.partition for run in runs], sizes),
            np.concatenate([run.offsets for run in runs]),
            np.concatenate([run.instants_ms for run in runs]),
            pa.concat_arrays([run.keys for run in runs]),
            pa.concat_arrays([run.values for run in runs]),
        )

    def others(self, left: Flags) -> list[tuple[PartitionRows, Indexes]]:
        """Return the rows that `left` marks, by run."""
        spans = zip(self.runs, pairwise(self.starts), strict=True)
        found = ((run, np.flatnonzero(left[start:end])) for run, (start, end) in spans)
        return [(run, indexes) for run, indexes in found if len(indexes)]


@dataclass(slots=True)
class _Keys:
    """The keys of rows: the code of each row's key, the distinct keys by code, and their types."""

    codes: Indexes
    distinct: pa.BinaryArray
    types: Indexes
    """0 or 1 for a regular key, else `IRREGULAR`. The last entry, `IRREGULAR`, is for rows without a key."""

    @classmethod
    def of(cls, rows: _Rows) -> "_Keys":
        encoded = rows.keys.dictionary_encode()
        distinct = encoded.dictionary
        codes = np.asarray(pc.fill_null(encoded.indices, len(distinct)), np.int64)
        return cls(codes, distinct, np.append(_types(distinct), IRREGULAR))

    def names(self, at: Indexes) -> list[bytes]:
        """Return the keys of some rows, without their types."""
        return [key[_TYPE_BYTES:] for key in self.distinct.take(pa.array(self.codes[at])).to_pylist()]


def _types(distinct: pa.BinaryArray) -> Indexes:
    """Return the types of keys: 0 or 1 if the key is complete, its group id is not empty, and its texts are UTF-8."""
    texts, types = _Texts.of(distinct), np.full(len(distinct), IRREGULAR, np.int64)
    at = np.flatnonzero(texts.lengths >= 2 + 2)
    keys = texts.take(at)
    type_, group = keys.number(0, 2), keys.number(2, 2)
    kept = ((type_ == 0) | (type_ == 1)) & (group > 0) & (keys.lengths >= 4 + group + 2)
    at, keys, group = at[kept], keys.take(kept), group[kept]
    topic = keys.number(4 + group, 2)
    kept = (topic >= 0) & (keys.lengths == 4 + group + 2 + topic + 4)
    at, keys, group, topic = at[kept], keys.take(kept), group[kept], topic[kept]
    types[at] = keys.number(0, 2)
    if texts.data.max(initial=0) < 0x80:
        return types
    non_ascii_before = np.concatenate([[0], np.cumsum(texts.data >= 0x80)])
    has_non_ascii = np.zeros(len(at), np.bool_)
    for start, size in ((keys.starts + 4, group), (keys.starts + 6 + group, topic)):
        has_non_ascii |= non_ascii_before[start + size] > non_ascii_before[start]
    for row in np.flatnonzero(has_non_ascii).tolist():
        if not _is_utf8(keys, row, (4, int(group[row])), (6 + int(group[row]), int(topic[row]))):
            types[at[row]] = IRREGULAR
    return types


def _is_utf8(keys: _Texts, row: int, *spans: tuple[int, int]) -> bool:
    try:
        for at, size in spans:
            keys.text(row, at, size).decode()
    except UnicodeDecodeError:
        return False
    return True


def _superseded(old: Indexes, rows: _Rows, keys: _Keys) -> Indexes:
    """Return which of the `old` rows are followed by another one of them with the same key and partition.

    A row without a key, or with a key too short to contain a type, is never superseded: its error is reported.
    """
    lengths = _Texts.of(keys.distinct).lengths
    old = old[np.append(lengths, 0)[keys.codes[old]] >= _TYPE_BYTES]
    places = rows.partitions[old] * (len(keys.distinct) + 1) + keys.codes[old]
    _, from_the_end = np.unique(places[::-1], return_index=True)
    return np.delete(old, len(old) - 1 - from_the_end)


def _count_superseded(at: Indexes, rows: _Rows) -> list[Counted]:
    """Count superseded rows by type and version, as far as these can be read."""
    chosen = pa.array(at)
    types, versions = (pc.binary_slice(column.take(chosen), 0, _TYPE_BYTES) for column in (rows.keys, rows.values))
    kinds = Counter(zip(types.to_pylist(), versions.to_pylist(), strict=True))
    return [
        Counted(_number(type_), None if version is None else _number(version), SUPERSEDED, number)
        for (type_, version), number in kinds.items()
    ]


def _number(head: bytes) -> int:
    return int.from_bytes(head, "big", signed=True)


def _places(keys: _Keys, partitions: Indexes, codes: Indexes) -> Indexes:
    """Return the place of each row: a number for its key without type, and its partition of the offsets topic.

    Keys of both types share a place. A group has records in several partitions only if the offsets topic has grown.
    """
    if (keys.types[:-1] == 0).any():
        code_of: dict[bytes, int] = {}
        same = [code_of.setdefault(key[_TYPE_BYTES:], len(code_of)) for key in keys.distinct.to_pylist()]
        codes = np.array(same, np.int64)[codes]
    partition_of = np.zeros(len(keys.distinct), np.int64)
    partition_of[codes] = partitions
    if (partition_of[codes] == partitions).all():
        return codes
    places: Indexes = np.unique(partitions * len(keys.distinct) + codes, return_inverse=True)[1]
    return places


@dataclass(slots=True)
class _Columns:
    """The committed values of rows; ``numbers`` are the offsets, the commit instants and the leader epochs."""

    numbers: tuple[Indexes, Indexes, Indexes]
    topic_ids: list[bytes]
    metadata: dict[int, str]


@dataclass(slots=True)
class _Values:
    """The values of rows: their versions, and the position and length of the metadata in regular ones."""

    texts: _Texts
    versions: Indexes
    metadata_at: Indexes
    metadata_bytes: Indexes

    @classmethod
    def of(cls, rows: _Rows) -> "_Values":
        texts, size = _Texts.of(rows.values), len(rows.values)
        made = cls(texts, np.full(size, IRREGULAR, np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64))
        at = np.flatnonzero(texts.lengths >= 2)
        versions = texts.take(at).number(0, 2)
        for version, layout in enumerate(_LAYOUTS):
            made._find(at[versions == version], version, layout)
        gone = np.asarray(rows.values.is_null(), np.bool_)
        made.versions[gone], made.metadata_bytes[gone] = TOMBSTONE, 0
        return made

    def _find(self, at: Indexes, version: int, layout: _Layout) -> None:
        """Find the regular values of a version among rows."""
        if not len(at):
            return
        at = at[self.texts.lengths[at] >= layout.length_at + 2]
        texts = self.texts.take(at)
        if layout.is_flexible:
            size, begin = _compact_length(texts, layout.length_at)
        else:
            size, begin = texts.number(layout.length_at, 2), np.full(len(at), layout.length_at + 2)
        end = begin + size + 8 + layout.after_instant
        fits = (size >= 0) & (size <= MAX_STRING_BYTES)
        fits &= _ends_with_known_tags(texts, end, fits) if layout.is_flexible else end == texts.lengths
        self.versions[at[fits]] = version
        self.metadata_at[at[fits]], self.metadata_bytes[at[fits]] = begin[fits], size[fits]

    def columns(self, at: Indexes) -> _Columns:
        """Read the committed values of some regular rows."""
        size = len(at)
        versions, texts = self.versions[at], self.texts.take(at)
        begin, metadata_bytes = self.metadata_at[at], self.metadata_bytes[at]
        offsets, commit_ms, epochs = np.full(size, NO_OFFSET), np.zeros(size, np.int64), np.full(size, -1)
        valued = np.flatnonzero(versions >= 0)
        values = texts.take(valued)
        offsets[valued] = np.maximum(values.number(2, 8), LEAST_OFFSET)
        commit_ms[valued] = values.number((begin + metadata_bytes)[valued], 8)
        with_epoch = np.flatnonzero(versions >= 3)
        epochs[with_epoch] = texts.take(with_epoch).number(_EPOCH, 4)
        tags_at = begin + metadata_bytes + 8
        topic_ids = _topic_ids(texts, tags_at, np.flatnonzero((versions == 4) & (texts.lengths > tags_at + 1)))
        heads = np.minimum(metadata_bytes, METADATA_CHARACTERS * _MAX_CHARACTER_BYTES)
        metadata = {
            row: java_text(texts.text(row, int(begin[row]), int(heads[row])))[:METADATA_CHARACTERS]
            for row in np.flatnonzero(metadata_bytes).tolist()
        }
        return _Columns((offsets, commit_ms, epochs), topic_ids, metadata)


def _topic_ids(texts: _Texts, tags_at: Indexes, rows: Indexes) -> list[bytes]:
    """Read the topic ids of the rows that have one; the others get an empty id."""
    topic_ids = [b""] * len(texts.lengths)
    if len(rows):
        places = (texts.starts + tags_at)[rows][:, None] + len(_TOPIC_ID) + np.arange(_ID_BYTES)
        joined = texts.data[places].tobytes()
        for number, row in enumerate(rows.tolist()):
            topic_id = joined[number * _ID_BYTES : (number + 1) * _ID_BYTES]
            topic_ids[row] = b"" if topic_id == _NO_ID else topic_id
    return topic_ids


def _compact_length(texts: _Texts, at: int) -> tuple[Indexes, Indexes]:
    """Return the length of a compact string and where it begins; -1 for a null or very long string."""
    low, high = (texts.data[texts.starts + at + byte].astype(np.int64) for byte in (0, 1))
    short = low < 0x80
    size = np.where(short, low, np.where(high < 0x80, low & 0x7F | high << 7, 0)) - 1
    return size, at + np.where(short, 1, 2)


def _ends_with_known_tags(texts: _Texts, end: Indexes, fits: Flags) -> Flags:
    """Tell which values end, after their last regular field, with no tagged field or with just the topic id."""
    known = np.zeros(len(end), np.bool_)
    for tags, rest in ((_NO_TAGS, 0), (_TOPIC_ID, _ID_BYTES)):
        rows = np.flatnonzero(fits & (end + len(tags) + rest == texts.lengths))
        known[rows] = texts.take(rows).has(end[rows], tags)
    return known


def _counted(types: Indexes, versions: Indexes) -> list[Counted]:
    """Count rows by type and version."""
    sizes = np.bincount(types * len(_LAYOUTS) * 2 + versions + 1, minlength=1)
    kinds = compress(enumerate(sizes.tolist()), sizes)
    parted = [(*divmod(kind, len(_LAYOUTS) * 2), rows) for kind, rows in kinds]
    return [
        Counted(type_, version - 1, "decoded", rows) if version else Counted(type_, None, "tombstone", rows)
        for type_, version, rows in parted
    ]
