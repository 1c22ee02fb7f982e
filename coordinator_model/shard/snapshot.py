"""A shard to versioned bytes and back.

That is ``(version, heartbeat table, memory, index, group store, commit times, commit index)``.

The heartbeat table changes with every heartbeat: packed arrays over the members' slots; and memory with every batch:
what the shard knows beside its groups. The index, which member has which slot, and the group store, one compressed
slice a group, stay the same bytes until something other than a heartbeat comes, and are read only by who has not read
them before.

Commit times change with every offset commit, the commit index with every partition that is committed to anew.

Format 26 (in 25 each departure had a copy of its join phase, members of before a conversion stood among those of the
last record, and slices had the heartbeats that the heartbeat table has; in 24 commits stood in memory by topic and
partition, and nothing was kept of simple groups nor of clients that live on in no group; in 23 less was known of what
clients tell; in 22 nothing was known of the coordinator's own log and of pushes without an age; in 21 no deadline had
an interval; in 20 nothing of refused commits, and records told no time; in 19 nothing was known of leaders that were
replaced or have resigned; in 18 nothing of coordinators that go on; in 17 nothing of blind windows; in 16 of recreated
topics; in 15 less of what may be owed; in 14 nothing of stepped clocks; in 13 less of timers; in 12 nothing of leaders;
in 11 less of refused, deleted and failed groups; in 10 spans had four bytes; in 9, 6, 5 and 4 less was known of join
phases; in 8 slices shared nothing; in 7 these parts were two; 3 had no timeouts; in 2 heartbeats that wait stood among
other events; in 1 less was known of groups and members).
Heartbeat table = last, then zlib'd interval, generation, span, timeout
(``array`` bytes, little-endian, slots in index order). memory = zlib(JSON). index = zlib(JSON
``[[group, [member id, ...]], ...]``). Group store = slices, zlib'd with ``_COMMON`` as preset dictionary (RFC 1950),
each with its uint32 length and its group's name before it. Commit times = ``array`` bytes. Commit index = zlib(uint32
bytes of the keys with a slot, in the order of their slots, those keys, then the keys of simple groups).

Migration guide: another version is refused, which the run's layout file turns into a fresh checkpoint beforehand (see
``streaming/run/layout.py``); open incidents are adopted by it.
"""

import base64
import json
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
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
from coordinator_model.replica.removals.phases import EndedPhase, JoinPhase
from coordinator_model.shard.commit_times import CommitRow, CommitTimes
from coordinator_model.shard.heartbeat_table import HeartbeatTable
from coordinator_model.shard.rebase import rebased
from coordinator_model.states import Cause, Evidence, GroupState, GroupType

VERSION = 26
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
"""What slices have in common, most of it last. Another one is another format."""
_MEMBER_FIELDS = [f.name for f in fields(Member)]
_HEARD = slice(_MEMBER_FIELDS.index("last_heartbeat_ms"), _MEMBER_FIELDS.index("previous_heartbeat_ms") + 1)
_APART = {"group", "members", "recorded", "unconverted", "leaves", "departures", "unexplained", "type", "state"}
_APART |= {"phase", "unreported_phase"}
_GROUP_FIELDS = [f.name for f in fields(GroupReplica) if f.name not in _APART]
_NOTES: dict[str, Callable[..., Any]] = {
    "pending": PendingMember,
    "unanswered_joins": UnansweredJoin,
    "rolled_back_replacements": RolledBackReplacement,
    "joining": JoiningMember,
    "logged": LoggedRemoval,
    "proofs": LoggedRemoval,
    "refused": Refusal,
    "zombies": Zombie,
}
"""What a group notes by name of a member or client: JSON has made a list of each."""
_PHASE_FIELDS = [f.name for f in fields(JoinPhase)]
_ENDED_FIELDS = [f.name for f in fields(EndedPhase)]
_DEPARTURE_FIELDS = [f.name for f in fields(Departure) if f.name not in ("member", "phase")]


def dump_index(heartbeat_table: HeartbeatTable) -> bytes:
    """Put the slots in the order of their members, and return who they are; that stays the same object while it can."""
    if heartbeat_table.index is not None:
        return heartbeat_table.index
    order = [slot for members in heartbeat_table.slots.values() for slot in members.values()]
    if order != list(range(len(heartbeat_table.last))):
        _reorder(heartbeat_table, order)
    listing = [[group, list(members)] for group, members in heartbeat_table.slots.items()]
    heartbeat_table.index = zlib.compress(json.dumps(listing, separators=(",", ":")).encode(), _LEVEL)
    return heartbeat_table.index


def dump_heartbeat_table(heartbeat_table: HeartbeatTable) -> bytes:
    """Encode what heartbeats change; no slot may have come or gone since ``dump_index``."""
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
    """Read what ``dump_heartbeat_table`` wrote; the slots are those of ``known`` where it has the same index.

    Raises ValueError or zlib.error on anything else.
    """
    heartbeat_table = HeartbeatTable()
    slots = known.slots if known.index == index else load_index(index)
    heartbeat_table.slots, heartbeat_table.index = slots, index
    members, start = sum(map(len, slots.values())), 0
    lasts = members * heartbeat_table.last.itemsize
    data = data[:lasts] + zlib.decompress(data[lasts:])
    for column in heartbeat_table.columns:
        end = start + members * column.itemsize
        column.frombytes(data[start:end])
        if sys.byteorder == "big":
            column.byteswap()
        start = end
    if start != len(data) or len(heartbeat_table.timeout) != members:
        raise ValueError("hot state: lengths do not agree")
    return heartbeat_table


def dump_commit_times(times: CommitTimes) -> tuple[bytes, bytes]:
    """Return the instants of commits, and whose they are; that stays the same object while it can."""
    if times.index is None:
        times.pack()
        simple = b"".join(key for keys in times.simple.values() for key in sorted(keys))
        keys = b"".join(times.slots)
        times.index = zlib.compress(len(keys).to_bytes(4, "little") + keys + simple, _LEVEL)
    return _bytes(times.last), times.index


def load_commit_times(data: bytes, index: bytes, known: CommitTimes) -> CommitTimes:
    """Read what ``dump_commit_times`` wrote; what is in ``known`` too is taken from it.

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
    """Encode commits that wait."""
    instants, offsets, keys, gone = zip(*rows, strict=True) if rows else ((), (), (), ())
    return [_bytes(array("q", instants)), _bytes(array("q", offsets)), b"".join(keys), bytes(gone)]


def load_commit_rows(columns: list[bytes]) -> list[CommitRow]:
    """Read what ``dump_commit_rows`` wrote."""
    instants, offsets, keys, gone = columns
    return list(zip(_numbers(instants), _numbers(offsets), _keys(keys), map(bool, gone), strict=True))


def _keys(joined: bytes) -> Iterator[bytes]:
    """Yield keys of commits that follow one another: each tells its own length."""
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
    """Encode what a shard knows beside its groups."""
    return zlib.compress(json.dumps(memory, separators=(",", ":"), default=_from_bytes).encode(), _LEVEL)


def load_memory(data: bytes) -> dict[str, Any]:
    """Read what ``dump_memory`` wrote."""
    memory: dict[str, Any] = json.loads(zlib.decompress(data), object_hook=_to_bytes)
    return memory


def dump_slices(slices: dict[str, bytes]) -> bytes:
    """Join slices, each with its name before it."""
    parts = []
    for name, piece in slices.items():
        encoded = name.encode()
        parts += [len(encoded).to_bytes(4, "little"), encoded, len(piece).to_bytes(4, "little"), piece]
    return b"".join(parts)


def load_slices(data: bytes) -> dict[str, bytes]:
    """Read slices by their names."""
    return dict(_pieces(data))


def _from_bytes(value: bytes) -> dict[str, str]:
    """Write the blobs in a record that is held back."""
    return {_BYTES: base64.b64encode(value).decode()}


def _to_bytes(value: dict[str, Any]) -> Any:
    """Read those blobs; a group may have that name too, but nothing keyed by names is a text."""
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
        [getattr(replica, name) for name in _GROUP_FIELDS],
        [_without_heartbeats(_from_member(m)) for m in replica.members.values()],
        [
            [_from_member(leave.member), leave.applied_ms, leave.cause, leave.reason, leave.alive_ms]
            for leave in replica.leaves
        ],
        [_from_departure(d, ended) for d in replica.departures],
        [_from_departure(d, ended) for d in replica.unexplained],
        [_from_member(m) for m in replica.recorded],
        [_from_member(m) for m in replica.unconverted],
        [getattr(replica.phase, name) for name in _PHASE_FIELDS],
        [[getattr(phase, name) for name in _ENDED_FIELDS] for phase in replica.ended_phases],
        ended.get(id(replica.unreported_phase)),
    ]
    return _squeezed(body)


def _squeezed(body: list[Any]) -> bytes:
    squeezer = zlib.compressobj(zdict=_COMMON)  # at zlib's usual level: seldom written, carried through each batch
    return squeezer.compress(json.dumps(body, separators=(",", ":")).encode()) + squeezer.flush()


def rebase_group(data: bytes, delta_ms: int, until_ms: int) -> bytes:
    """Move all instants of one group along with its coordinator's clock."""
    return _squeezed(rebased(json.loads(zlib.decompressobj(zdict=_COMMON).decompress(data)), delta_ms, until_ms))


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
    replica.recorded = [_to_member(m) for m in recorded]
    replica.unconverted = [_to_member(m) for m in unconverted]
    for name, note in _NOTES.items():
        setattr(replica, name, {key: note(*fields) for key, fields in getattr(replica, name).items()})
    phase, ended, unreported = phases
    replica.phase = JoinPhase(**dict(zip(_PHASE_FIELDS, phase, strict=True)))
    ended_phases = [EndedPhase(**dict(zip(_ENDED_FIELDS, one, strict=True))) for one in ended]
    replica.unreported_phase = None if unreported is None else ended_phases[unreported]
    replica.departures = [_to_departure(d, ended_phases) for d in departures]
    replica.unexplained = [_to_departure(d, ended_phases) for d in unexplained]
    return replica


def _from_member(member: Member) -> list[Any]:
    return [getattr(member, name) for name in _MEMBER_FIELDS]


def _without_heartbeats(values: list[Any]) -> list[Any]:
    """Leave out what the heartbeat table has of a member that is in its group."""
    values[_HEARD] = None, None
    return values


def _to_member(values: list[Any]) -> Member:
    return Member(**dict(zip(_MEMBER_FIELDS, values, strict=True)))


def _from_departure(departure: Departure, ended: Mapping[int, int]) -> list[Any]:
    """Write a departure; its phase by its number among the ended ones."""
    others = [getattr(departure, name) for name in _DEPARTURE_FIELDS]
    return [_from_member(departure.member), ended[id(departure.phase)], *others]


def _to_departure(values: list[Any], ended: Sequence[EndedPhase]) -> Departure:
    member, phase, *others = values
    known = dict(zip(_DEPARTURE_FIELDS, others, strict=True))
    departure = Departure(_to_member(member), phase=ended[phase], **known)
    departure.cause, departure.evidence = Cause(departure.cause), Evidence(departure.evidence)
    return departure
