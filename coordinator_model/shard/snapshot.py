"""Writes a shard to versioned bytes and reads it back.

The state is ``(version, heartbeat table, memory, index, group store, commit times, commit index)``. The parts differ in
how often they change, so that a batch of heartbeats and commits writes little:

- The heartbeat table (packed arrays over the members' slots) changes with every heartbeat.
- The memory (what the shard knows besides its groups) changes with every batch.
- The index (which member has which slot) and the group store (one compressed slice for each group) stay the same bytes
  until something other than a heartbeat or a commit comes. A reader that has decoded the same bytes before skips them.
- The commit times change with every offset commit, the commit index only when a partition is new or forgotten.

``CHANGELOG.md`` says what each format changed. This is format 29:

- heartbeat table = last heartbeats, then zlib(interval, generation, span, timeout), each the bytes of an ``array``,
  little-endian, slots in index order
- memory = zlib(JSON)
- index = zlib(JSON ``[[group, [member id, ...]], ...]``)
- group store = for each group the uint32 length of its id, the id, the uint32 length of its slice, and the slice, which
  is zlib'd with ``_COMMON`` as preset dictionary (RFC 1950)
- commit times = the bytes of an ``array``
- commit index = zlib(uint32 bytes of the keys with a slot, those keys in the order of their slots, the keys of simple
  groups)

Migration guide: a new format increments ``VERSION``. ``migrated_groups`` converts the slices of earlier formats to
this one, ``READABLE`` names them, and ``tests/coordinator_model/shard/test_migration.py`` tests that with a state of
the previous format. If a conversion is not worth its code, ``READABLE`` is ``VERSION`` alone. A state of any other
version is refused. Before that can happen, the run's layout file, which names the version, makes the job begin a fresh
checkpoint (``streaming/run/layout.py``); the job then adopts the open incidents.
"""

import base64
import json
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from coordinator_model.commit_block import key_end, place_of
from coordinator_model.replica.group import GroupReplica, Leave
from coordinator_model.replica.member import Member
from coordinator_model.replica.notes import (
    Divergence,
    JoiningMember,
    LoggedRemoval,
    PendingMember,
    Rebalance,
    Refusal,
    RolledBackReplacement,
    SetAside,
    UnansweredJoin,
    Violation,
    Zombie,
)
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.phases import EndedPhase, JoinPhase, JoinsSeen, PhaseEnd, PhaseStart
from coordinator_model.shard.commit_times import CommitRow, CommitTimes
from coordinator_model.shard.heartbeat_table import HeartbeatTable
from coordinator_model.shard.rebase import rebased
from coordinator_model.states import Cause, Evidence, GroupState, GroupType

FORMAT_27 = 27
VERSION = 29
READABLE = (FORMAT_27, 28, VERSION)
"""The formats of states that can be read."""
_LEVEL = 1
_BYTES = "bytes in base64"
_COMMON = (
    b'"Empty","Dead","Assigning","Reconciling","PreparingRebalance","CompletingRebalance","inferred","roundrobin",'
    b'"sticky","cooperative-sticky","uniform","session-timeout","static-left","replaced",["consumer","Stable",["observed",'
    b'0,1,0,null,-1,null,"",-1,{},null,-1,"consumer","range","consumer-",0,false,null,1,{},{},{},{},[],[],null,[],{},null,0],'
    b'[],[],[],[],[0,null,"",null,null,0,-1,0,[]],[],null]["classic","Stable",["observed",",null,"rdkafka","10.0.0.1",null,null,'
    b'null,null,null,30000,60000,["",null,"consumer-","192.168.",null,null,null,null,null,10000,300000,["",null,"kafka-python-",'
    b'"172.17.0.1",null,null,null,null,null,45000,300000,[""]},0,1,1800000000000,1800000000000,1800000000000,1800000000000,'
    b'null,null,null,null,null,null,false,null,[],null,{},{},null,{},false,null,false,false,null,null,null,null,null,3000],["'
)
"""A preset dictionary for zlib: text that is common in slices, the most common last.

A change of it is a change of the format.
"""
_to_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_MEMBER_FIELDS = [f.name for f in fields(Member)]
_of_member = attrgetter(*_MEMBER_FIELDS)
_HEARD = slice(_MEMBER_FIELDS.index("last_heartbeat_ms"), _MEMBER_FIELDS.index("previous_heartbeat_ms") + 1)
_APART = {"group", "members", "recorded", "unconverted", "leaves", "departures", "unexplained", "type", "state"}
_APART |= {"phase", "unreported_phase"}
_GROUP_FIELDS = [f.name for f in fields(GroupReplica) if f.name not in _APART]
_of_group = attrgetter(*_GROUP_FIELDS)


def _to_zombie(*values: Any) -> Zombie:
    zombie = Zombie(*values)
    return zombie._replace(partitions=[(topic, number) for topic, number in zombie.partitions])


_NOTES: dict[str, Callable[..., Any]] = {
    "pending": PendingMember,
    "unanswered_joins": UnansweredJoin,
    "rolled_back_replacements": RolledBackReplacement,
    "joining": JoiningMember,
    "logged": LoggedRemoval,
    "proofs": LoggedRemoval,
    "refused": Refusal,
    "zombies": _to_zombie,
}
"""Fields of a group whose values are dicts of named tuples. JSON makes a list of each tuple."""
_PHASE_FIELDS = [f.name for f in fields(JoinPhase)]
_ENDED_FIELDS = [f.name for f in fields(EndedPhase)]
_DEPARTURE_FIELDS = [f.name for f in fields(Departure) if f.name not in ("member", "phase")]


def dump_index(heartbeat_table: HeartbeatTable) -> bytes:
    """Put the slots in the order of their members, and return the index, which is the same object unless it changed."""
    if heartbeat_table.index is not None:
        return heartbeat_table.index
    order = [slot for members in heartbeat_table.slots.values() for slot in members.values()]
    if order != list(range(len(heartbeat_table.last_ms))):
        _reorder(heartbeat_table, order)
    listing = [[group, list(members)] for group, members in heartbeat_table.slots.items()]
    heartbeat_table.index = zlib.compress(_to_json(listing).encode(), _LEVEL)
    return heartbeat_table.index


def dump_heartbeat_table(heartbeat_table: HeartbeatTable) -> bytes:
    """Encode the heartbeat table. No slot may have been added or freed since ``dump_index``."""
    last, *others = map(_bytes, heartbeat_table.columns)
    return last + zlib.compress(b"".join(others), _LEVEL)


def _reorder(heartbeat_table: HeartbeatTable, order: list[int]) -> None:
    for column in heartbeat_table.columns:
        column[:] = array(column.typecode, [column[slot] for slot in order])
    slot = 0
    for members in heartbeat_table.slots.values():
        for member_id in members:
            members[member_id] = slot
            slot += 1
    heartbeat_table.free.clear()


def _bytes(column: "array[int]") -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()


def load_index(index: bytes) -> dict[str, dict[str, int]]:
    """Read what ``dump_index`` wrote. Raises ValueError or zlib.error on anything else."""
    slots: dict[str, dict[str, int]] = {}
    slot = 0
    for group, member_ids in json.loads(zlib.decompress(index)):
        slots[group] = {member_id: slot + n for n, member_id in enumerate(member_ids)}
        slot += len(member_ids)
    return slots


def load_heartbeat_table(data: bytes, index: bytes, known: HeartbeatTable) -> HeartbeatTable:
    """Read what ``dump_heartbeat_table`` wrote. If ``known`` has the same index, its slots are reused.

    Raises ValueError or zlib.error on anything else.
    """
    heartbeat_table = HeartbeatTable()
    slots = known.slots if known.index == index else load_index(index)
    heartbeat_table.slots, heartbeat_table.index = slots, index
    members, start = sum(map(len, slots.values())), 0
    lasts = members * heartbeat_table.last_ms.itemsize
    data = data[:lasts] + zlib.decompress(data[lasts:])
    for column in heartbeat_table.columns:
        end = start + members * column.itemsize
        column.frombytes(data[start:end])
        if sys.byteorder == "big":
            column.byteswap()
        start = end
    if start != len(data) or len(heartbeat_table.timeout_ms) != members:
        raise ValueError("heartbeat table: lengths do not agree")
    return heartbeat_table


def dump_commit_times(times: CommitTimes) -> tuple[bytes, bytes]:
    """Return the instants of commits, and their index, which is the same object unless it changed."""
    if times.index is None:
        times.pack()
        simple = b"".join(key for keys in times.simple.values() for key in sorted(keys))
        keys = b"".join(times.slots)
        times.index = zlib.compress(len(keys).to_bytes(4, "little") + keys + simple, _LEVEL)
    return _bytes(times.last), times.index


def load_commit_times(data: bytes, index: bytes, known: CommitTimes) -> CommitTimes:
    """Read what ``dump_commit_times`` wrote. If ``known`` has the same index, its slots are reused.

    Raises ValueError or zlib.error on anything else.
    """
    times = CommitTimes()
    times.last, times.index = _numbers(data), index
    if known.index == index:
        times.slots, times.simple = known.slots, known.simple
    else:
        both = zlib.decompress(index)
        end = 4 + int.from_bytes(both[:4], "little")
        times.slots = {key: slot for slot, key in enumerate(_keys(both[4:end]))}
        for key in _keys(both[end:]):
            times.simple.setdefault(place_of(key)[0], set()).add(key)
    if len(times.slots) != len(times.last):
        raise ValueError("commit times: lengths do not agree")
    return times


def dump_commit_rows(rows: Sequence[CommitRow]) -> list[bytes]:
    """Encode commits that are held back."""
    instants, offsets, keys, gone = zip(*rows, strict=True) if rows else ((), (), (), ())
    return [_bytes(array("q", instants)), _bytes(array("q", offsets)), b"".join(keys), bytes(gone)]


def load_commit_rows(columns: list[bytes]) -> list[CommitRow]:
    """Read what ``dump_commit_rows`` wrote."""
    instants, offsets, keys, gone = columns
    return list(zip(_numbers(instants), _numbers(offsets), _keys(keys), map(bool, gone), strict=True))


def _keys(joined: bytes) -> Iterator[bytes]:
    """Yield the keys of commits in joined bytes. Each key contains its own length."""
    start = 0
    while start < len(joined):
        end = key_end(joined, start)
        yield joined[start:end]
        start = end


def _numbers(data: bytes) -> "array[int]":
    numbers = array("q", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def dump_memory(memory: dict[str, Any]) -> bytes:
    """Encode the memory of a shard."""
    return zlib.compress(json.dumps(memory, separators=(",", ":"), default=_from_bytes).encode(), _LEVEL)


def load_memory(data: bytes) -> dict[str, Any]:
    """Read what ``dump_memory`` wrote."""
    memory: dict[str, Any] = json.loads(zlib.decompress(data), object_hook=_to_bytes)
    return memory


def dump_slices(slices: dict[str, bytes]) -> bytes:
    """Join slices, each after its group's id."""
    parts = []
    for name, piece in slices.items():
        encoded = name.encode()
        parts += [len(encoded).to_bytes(4, "little"), encoded, len(piece).to_bytes(4, "little"), piece]
    return b"".join(parts)


def load_slices(data: bytes) -> dict[str, bytes]:
    """Read slices by their groups' ids."""
    return dict(_pieces(data))


def _from_bytes(value: bytes) -> dict[str, str]:
    """Encode the bytes in a record that is held back, because JSON has no bytes."""
    return {_BYTES: base64.b64encode(value).decode()}


def _to_bytes(value: dict[str, Any]) -> Any:
    """Decode bytes. A group's id may equal the marker, but the value under such a key is never a string."""
    blob = value.get(_BYTES)
    return base64.b64decode(blob) if isinstance(blob, str) and len(value) == 1 else value


def _pieces(data: bytes) -> Iterator[tuple[str, bytes]]:
    at = 0
    while at < len(data):
        both = []
        for _ in range(2):
            length = int.from_bytes(data[at : at + 4], "little")
            both.append(data[at + 4 : at + 4 + length])
            at += 4 + length
        yield both[0].decode(), both[1]


def dump_group(replica: GroupReplica) -> bytes:
    """Encode one group."""
    ended = {id(phase): number for number, phase in enumerate(replica.ended_phases)}
    body = [
        replica.type.value,
        replica.state.value,
        _of_group(replica),
        [_without_heartbeats(_from_member(m)) for m in replica.members.values()],
        [
            [_from_member(leave.member), leave.applied_ms, leave.cause, leave.reason, leave.alive_ms, leave.broker]
            for leave in replica.leaves
        ],
        [_from_departure(d, ended) for d in replica.departures],
        [_from_departure(d, ended) for d in replica.unexplained],
        [_from_member(m) for m in replica.recorded.values()],
        [_from_member(m) for m in replica.unconverted],
        [getattr(replica.phase, name) for name in _PHASE_FIELDS],
        [[getattr(phase, name) for name in _ENDED_FIELDS] for phase in replica.ended_phases],
        ended.get(id(replica.unreported_phase)),
    ]
    return _squeezed(body)


def _squeezed(body: list[Any]) -> bytes:
    squeezer = zlib.compressobj(zdict=_COMMON)  # at zlib's default level: written rarely, but stored with each batch
    return squeezer.compress(_to_json(body).encode()) + squeezer.flush()


def _unsqueezed(data: bytes) -> Any:
    return json.loads(zlib.decompressobj(zdict=_COMMON).decompress(data))


def rebase_group(data: bytes, delta_ms: int, until_ms: int) -> bytes:
    """Move all instants of one group along with its coordinator's clock."""
    return _squeezed(rebased(_unsqueezed(data), delta_ms, until_ms))


def migrated_groups(data: bytes, version: int) -> bytes:
    """Return the group store of a state of a readable version, converted to the current format."""
    if version == VERSION:
        return data
    pieces = load_slices(data).items()
    return dump_slices({name: _squeezed(_converted(_unsqueezed(piece), version)) for name, piece in pieces})


def _converted(body: list[Any], version: int) -> list[Any]:
    """Convert a group of an earlier format to this one, which has the leader and the protocol of the last record.

    Format 28 has that leader already, and it is not known of format 27. The protocol of the last record is believed to
    be that of the replica. In format 27, if no JoinGroup of the generation was seen, ``announced_by`` named the broker
    of an earlier one.
    """
    new = {"recorded_protocol"} if version > FORMAT_27 else {"recorded_protocol", "recorded_leader"}
    values = dict(zip((name for name in _GROUP_FIELDS if name not in new), body[2], strict=True))
    values |= {"recorded_protocol": values["protocol"], "recorded_leader": values.get("recorded_leader")}
    if version == FORMAT_27 and values["seen_generation"] != values["generation"]:
        values["announced_by"] = ""
    body[2] = [values[name] for name in _GROUP_FIELDS]
    return body


def load_group(group: str, data: bytes) -> GroupReplica:
    """Decode one group."""
    unpacker = zlib.decompressobj(zdict=_COMMON)
    text = unpacker.decompress(data)
    if not unpacker.eof:
        raise ValueError(f"the slice of group {group!r} is cut short")
    type_, state, values, members, leaves, departures, unexplained, recorded, unconverted, *phases = json.loads(text)
    replica = GroupReplica(group, type=GroupType(type_), state=GroupState(state))
    for name, value in zip(_GROUP_FIELDS, values, strict=True):
        setattr(replica, name, value)
    replica.state_evidence = Evidence(replica.state_evidence)
    replica.set_aside = SetAside(*replica.set_aside) if replica.set_aside else None
    replica.diverged = Divergence(*replica.diverged) if replica.diverged else None
    replica.violations = [Violation(*each) for each in replica.violations]
    replica.rebalances = [Rebalance(*each) for each in replica.rebalances]
    replica.aborted = [Rebalance(*each) for each in replica.aborted]
    for member in map(_to_member, members):
        replica.members[member.member_id] = member
    replica.leaves = [Leave(_to_member(m), at_ms, Cause(cause), *more) for m, at_ms, cause, *more in leaves]
    replica.recorded = {member.member_id: member for member in map(_to_member, recorded)}
    replica.unconverted = [_to_member(m) for m in unconverted]
    for name, note in _NOTES.items():
        setattr(replica, name, {key: note(*fields) for key, fields in getattr(replica, name).items()})
    phase, ended, unreported = phases
    replica.joins = JoinsSeen(*replica.joins)
    replica.phase = JoinPhase(*_to_phase(phase))
    ended_phases = [EndedPhase(*_to_phase(one[:4]), JoinsSeen(*one[4]), *one[5:]) for one in ended]
    replica.unreported_phase = None if unreported is None else ended_phases[unreported]
    replica.departures = [_to_departure(d, ended_phases) for d in departures]
    replica.unexplained = [_to_departure(d, ended_phases) for d in unexplained]
    return replica


def _to_phase(values: list[Any]) -> tuple[int, PhaseStart | None, PhaseEnd | None, list[str]]:
    began_after_ms, start, end, unanswered = values
    return began_after_ms, start and PhaseStart(*start), end and PhaseEnd(*end), unanswered


def _from_member(member: Member) -> list[Any]:
    return list(_of_member(member))


def _without_heartbeats(values: list[Any]) -> list[Any]:
    """Leave out the heartbeats of a current member, because the heartbeat table has them."""
    values[_HEARD] = None, None
    return values


def _to_member(values: list[Any]) -> Member:
    return Member(**dict(zip(_MEMBER_FIELDS, values, strict=True)))


def _from_departure(departure: Departure, ended: Mapping[int, int]) -> list[Any]:
    """Encode a departure. Its phase is encoded as its index in the list of ended phases."""
    others = [getattr(departure, name) for name in _DEPARTURE_FIELDS]
    return [_from_member(departure.member), ended[id(departure.phase)], *others]


def _to_departure(values: list[Any], ended: Sequence[EndedPhase]) -> Departure:
    member, phase, *others = values
    known = dict(zip(_DEPARTURE_FIELDS, others, strict=True))
    departure = Departure(_to_member(member), phase=ended[phase], **known)
    departure.cause, departure.evidence = Cause(departure.cause), Evidence(departure.evidence)
    return departure
