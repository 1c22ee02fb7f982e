"""What happened according to the broker: its INFO log, parsed into events. The monitor's claims are judged by it.

The wordings are Kafka 4.3.1's own (`GroupMetadataManager`, `CoordinatorRuntime`). They are not part of Kafka's API: a
line that matches none is not an event. Instants are when the broker wrote the line, in milliseconds, by its own clock.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

SESSION_EXPIRED: Final = "session-expired"
REBALANCE_TIMEOUT: Final = "rebalance-timeout"
PENDING_EXPIRED: Final = "pending-expired"  # an id given out with error 79 and never used: no member, no incident
LEFT: Final = "left"
DEAD: Final = "dead"  # a timer went on for a group that was unloaded or converted to another kind
TAKE_OVER_MS: Final = 3_000
"""What a broker logs this shortly before it unloads its groups, or another loads them, may not have been written."""
POLL_TIMEOUT_REASON: Final = "poll timeout has expired"  # part of the leave reason of Java clients and Connect workers


class TruthEvent(NamedTuple):
    """One event that a broker logged; `member_id` is "" if it is about a whole group or partition.

    `partition` is that of `__consumer_offsets`, or -1 if the event is not about one. `detail` is what else the line
    says: why a client left or why a rebalance began, or the id that replaced a static member.
    """

    kind: str
    group: str
    member_id: str
    at_ms: int
    broker: str
    partition: int
    detail: str
    line: str


# kind, and the format string in Kafka's source with its {} named; `_` is ignored. The first one that matches counts.
_WORDINGS: Final = (
    (SESSION_EXPIRED, "Member {member} in group {group} has failed, removing it from the group."),
    (SESSION_EXPIRED, "[GroupId {group}] Member {member} fenced from the group because the member session expired{_}"),
    (
        SESSION_EXPIRED,
        "[GroupId {group}] Streams member {member} fenced from the group because the member session expired{_}",
    ),
    (
        REBALANCE_TIMEOUT,
        "[GroupId {group}] Member {member} fenced from the group because it {detail} from epoch {_} within {_}ms.",
    ),
    (
        REBALANCE_TIMEOUT,
        (
            "[GroupId {group}] Member {member} fenced from the group because"
            " the classic member {detail} within the rebalance{_}"
        ),
    ),
    (
        REBALANCE_TIMEOUT,
        "[GroupId {group}] Member {member} fenced from the group because the member {detail} within timeout{_}",
    ),
    (REBALANCE_TIMEOUT, "Group {group} removed dynamic members who haven't {detail}: {members}"),
    (
        REBALANCE_TIMEOUT,  # the more direct line ("removed members who haven't sent ...") is at DEBUG
        (
            "Preparing to rebalance group {group} in state {_} with old generation {_}"
            " (reason: Removing {members} on {detail} expiration)."
        ),
    ),
    (PENDING_EXPIRED, "Pending member {member} in group {group} has been removed after session timeout expiration."),
    (
        "pending-left",
        (
            "[Group {group}] Pending member {member} has left group through explicit `LeaveGroup` request;"
            " client reason: {detail}"
        ),
    ),
    (
        LEFT,
        "[Group {group}] Member {member} has left group through explicit `LeaveGroup` request; client reason: {detail}",
    ),
    (
        LEFT,
        (
            "[GroupId {group}] Dynamic member {member} has left group through explicit `LeaveGroup` request;"
            " client reason: {detail}"
        ),
    ),
    (
        LEFT,
        (
            "[GroupId {group}] Static member {member} with instance id {_} has left group through explicit `LeaveGroup`"
            " request; client reason: {detail}"
        ),
    ),
    (
        "left-temporarily",
        "[GroupId {group}] Static member {member} with instance id {_} temporarily left the consumer group.",
    ),
    (LEFT, "[GroupId {group}] Static member {member} with instance id {_} left the consumer group."),
    (LEFT, "[GroupId {group}] Member {member} left the consumer group."),
    (LEFT, "[GroupId {group}] Member {member} left the share group."),
    (LEFT, "[GroupId {group}][MemberId {member}] Member {_} left the streams group."),
    (
        "replaced",
        (
            "Static member with groupInstanceId={_} and unknown member id joins group {group} in {_} state."
            " Replacing previously mapped member {member} with this groupInstanceId."
        ),
    ),
    (
        "replaced",
        (
            "[GroupId {group}] Static member with instance id {_} re-joins the consumer group using the {_} protocol."
            " Created a new member {detail} to replace the existing member {member}."
        ),
    ),
    (
        "restored",
        (
            "Failed to persist metadata for group {group} static member {_} with group instance id {_} due to {_}."
            " Reverting to old member id {member}."
        ),
    ),
    (
        "joined",
        (
            "Static member with groupInstanceId={_} and unknown member id joins group {group} in {_} state."
            " Created a new member id {member} for this member and added to the group."
        ),
    ),
    ("joined", "Pending dynamic member with id {member} joins group {group} in {_} state. Adding to the group now."),
    ("joined", "[GroupId {group}] Member {member} joins the consumer group using the {detail} protocol."),
    ("joined", "[GroupId {group}] Member {member} joins the share group using the {detail} protocol."),
    ("joined", "[GroupId {group}][MemberId {member}] Member joins the streams group."),
    (
        "joined",
        (
            "[GroupId {group}] Static member {member} with instance id {_} joins the consumer group"
            " using the {detail} protocol."
        ),
    ),
    ("rebalance", "Preparing to rebalance group {group} in state {_} with old generation {_} (reason: {detail})."),
    ("generation", "Stabilized group {group} generation {detail} members."),
    ("empty", "Group {group} with generation {detail} is now empty."),
    (DEAD, "Group {group} is dead, skipping rebalance stage."),
    ("coordinator-loaded", "Finished loading of metadata from __consumer_offsets-{partition} with epoch {_} in {_}"),
    ("coordinator-unloaded", "Finished unloading metadata for __consumer_offsets-{partition} with epoch {_}"),
    ("broker-started", "Kafka Server started"),
    ("broker-stopping", "Terminating process due to signal {detail}"),
)
_OF_A_MEMBER: Final = {LEFT, "left-temporarily", "replaced", REBALANCE_TIMEOUT}
_PLACE: Final = re.compile(r"\\\{(\w+)\\\}")


def _compile(wording: str) -> re.Pattern[str]:
    return re.compile(_PLACE.sub(lambda place: ".*" if place[1] == "_" else f"(?P<{place[1]}>.*)", re.escape(wording)))


_COMPILED: Final = tuple((kind, _compile(wording)) for kind, wording in _WORDINGS)

# `[time] LEVEL [part of the broker, with its id] message (logger)`; without a zone it is UTC, as `Node` sets its JVM.
_LINE: Final = re.compile(
    r"\[(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)[,.](?P<millis>\d{3})(?P<zone>Z|[+-]\d\d:?\d\d)?\] [A-Z]+ +"
    r"(?:\[\w+ \w*[iI]d=\d+(?: topic=\S+ partition=(?P<partition>\d+))?\] )?(?P<message>.*) \([\w.$]+\)\s*"
)
# A member id ends with a uuid; the client id at its beginning may contain commas. A member id of KIP-848, which remains
# in a classic group after a downgrade, is a uuid in base64.
_BETWEEN_MEMBERS: Final = re.compile(r"(?<=-[0-9a-f]{12}), |(?<=^[\w-]{22}), |(?<=, [\w-]{22}), ")


def parse_line(line: str, broker: str) -> tuple[TruthEvent, ...]:
    """Parse one line of `broker`'s log: usually no event, several if the line names several members."""
    found = _LINE.fullmatch(line)
    if found is None:
        return ()
    for kind, wording in _COMPILED:
        match = wording.fullmatch(found["message"])
        if match is not None:
            return tuple(_events(kind, match.groupdict(), found, broker))
    return ()


def _events(kind: str, names: Mapping[str, str], found: re.Match[str], broker: str) -> Iterator[TruthEvent]:
    members = [names.get("member", "")]
    if "members" in names:
        members = _BETWEEN_MEMBERS.split(names["members"].strip("[]"))
    at_ms, partition = _epoch_ms(found), int(names.get("partition", found["partition"] or -1))
    for member in members:
        yield TruthEvent(
            kind, names.get("group", ""), member, at_ms, broker, partition, names.get("detail", ""), found["message"]
        )


def _epoch_ms(found: re.Match[str]) -> int:
    zone = (found["zone"] or "Z").replace("Z", "+00:00")
    return round(datetime.fromisoformat(found["time"] + zone).timestamp()) * 1000 + int(found["millis"])


def read_truth(logs: Mapping[str, Iterable[Path]]) -> list[TruthEvent]:
    """Merge several brokers' log files into one list by instant; `logs` is by broker ("broker-1")."""
    events = [event for broker, paths in logs.items() for path in paths for event in _events_of(path, broker)]
    return without_dead_groups(sorted(events, key=lambda event: event.at_ms))


def without_dead_groups(events: Iterable[TruthEvent]) -> list[TruthEvent]:
    """Leave out removals by the timer of a dead group, a former object of the group that is no longer in use.

    The coordinator logs the removal first, and then that the group is dead (``completeClassicGroupJoin``).
    """
    events = list(events)
    dead = {(event.broker, event.group, event.at_ms) for event in events if event.kind == DEAD}
    return [
        event
        for event in events
        if event.kind != REBALANCE_TIMEOUT or (event.broker, event.group, event.at_ms) not in dead
    ]


def _events_of(path: Path, broker: str) -> Iterator[TruthEvent]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            yield from parse_line(line, broker)


def authoritative(events: Iterable[TruthEvent]) -> Iterator[TruthEvent]:
    """Leave out what a broker logged about groups that another broker had already taken over.

    When a paused broker resumes, it does not know this yet: it still runs its timers as coordinator, logs the results,
    and then fails to write them.
    """
    coordinators: dict[int, str] = {}
    for event in events:
        if event.kind == "coordinator-loaded":
            coordinators[event.partition] = event.broker
        elif event.partition >= 0 and coordinators.get(event.partition, event.broker) != event.broker:
            continue
        yield event


@dataclass(slots=True)
class Expiry:
    """The end of one life of a member by a timeout, with all lines about it; usually one.

    There are several lines if the removal did not last, because its write failed and was retried, or because a new
    coordinator loaded the member again from records without the removal.
    """

    lines: list[TruthEvent]
    certain: bool = False
    """False if nobody else needs to have seen it: it was logged by a broker that was being or had been replaced, so its
    write may have failed; it was undone by a load of older records; or such a load brought back a member that had left.
    """


def session_expiries(events: Iterable[TruthEvent]) -> list[Expiry]:
    """Find the expired sessions in merged logs, in the order of their first lines."""
    events = list(events)
    trusted, moves = set(authoritative(events)), coordinator_moves(events)
    expiries: list[Expiry] = []
    current: dict[tuple[str, str], Expiry] = {}
    left: set[tuple[str, str]] = set()
    for event in events:
        member = (event.group, event.member_id)
        if event.kind == SESSION_EXPIRED:
            certain = event in trusted and member not in left and lasts(event, moves)
            _add_line(expiries, current, event, certain=certain)
        elif event not in trusted:
            continue
        elif event.kind == "joined":
            current.pop(member, None)
            left.discard(member)
        elif event.kind in _OF_A_MEMBER:
            left.add(member)
            if member in current:  # it was a member after all: a new coordinator had loaded it again
                current[member].certain = False
    return expiries


def missed_rebalances(events: Iterable[TruthEvent]) -> list[Expiry]:
    """Find the members that missed a join, sync or revocation in merged logs, in the order of their first lines.

    A static member's timer for its sync outlives its replacement, and then removes nobody, unless the replacement is
    rolled back because its write fails. A KIP-848 member that comes back under its own id replaces itself, and goes on.
    """
    events = list(events)
    trusted, moves = set(authoritative(events)), coordinator_moves(events)
    missed: list[Expiry] = []
    current: dict[tuple[str, str], Expiry] = {}
    replaced: set[tuple[str, str]] = set()
    for event in events:
        member = (event.group, event.member_id)
        if event.kind == REBALANCE_TIMEOUT and member not in replaced:
            _add_line(missed, current, event, certain=event in trusted and lasts(event, moves))
        elif event not in trusted:
            continue
        elif event.kind == "replaced" and event.detail != event.member_id:
            replaced.add(member)
            replaced.discard((event.group, event.detail))
        elif event.kind == "restored":
            replaced.discard(member)
        elif event.kind == "joined":
            current.pop(member, None)
            replaced.discard(member)
    return missed


def _add_line(found: list[Expiry], current: dict[tuple[str, str], Expiry], event: TruthEvent, *, certain: bool) -> None:
    """Add a line to the end of its member's current life; the first line begins an entry of ``found``."""
    member = (event.group, event.member_id)
    if member not in current:
        current[member] = Expiry([])
        found.append(current[member])
    current[member].lines.append(event)
    current[member].certain |= certain


def coordinator_moves(events: Sequence[TruthEvent]) -> list[TruthEvent]:
    """Return the events at which brokers became coordinators or ceased to be."""
    moves = [event for event in authoritative(events) if event.kind == "coordinator-loaded"]
    return moves + [event for event in events if event.kind == "coordinator-unloaded"]


def lasts(event: TruthEvent, moves: Iterable[TruthEvent]) -> bool:
    """Tell whether a logged event was certainly written: no other broker took over shortly after it."""
    return not any(_takes_away(move, event) for move in moves)


def _takes_away(move: TruthEvent, event: TruthEvent) -> bool:
    """Tell whether, shortly after an event, another broker loads the groups or the one that logged it unloads them."""
    soon = 0 <= move.at_ms - event.at_ms <= TAKE_OVER_MS and move.partition == event.partition
    return soon and (move.broker != event.broker) == (move.kind == "coordinator-loaded")
