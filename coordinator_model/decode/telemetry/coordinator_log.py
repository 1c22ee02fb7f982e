"""Turns a line of the group coordinator's own log (INFO) into an event: a member's removal or leave, a load.

Theory. Such a line names the cause of a removal, which no record has, at the instant at which the coordinator acts.
Kafka does not guarantee its text, so the wordings are listed here: of the Java coordinator (``GroupMetadataManager``,
``CoordinatorRuntime``) and of the Scala one (``GroupCoordinator``, ``GroupMetadataManager``). They were taken from
brokers of 2.8 to 4.3 (`tests/e2e/old_brokers.py`). A line in another wording is rejected and counted, never guessed.

Clients choose group ids, member ids, instance ids and reasons, which may contain anything, including the words of these
lines. So a line counts only if it fits one wording in exactly one way: the first fit is compared with the last. That
takes time linear in the length of the line, unlike a regular expression.
"""

import re
from typing import Final, NamedTuple

from coordinator_model.decode.source_row import SourceRow
from coordinator_model.decode.telemetry.fields import BadField, clean
from coordinator_model.decode.telemetry.shipped import is_coordinator_line
from coordinator_model.events import (
    EMPTIED,
    FENCED,
    GENERATION,
    JOINED,
    LEFT,
    LEFT_FOR_A_WHILE,
    LOADED,
    PENDING_GONE,
    REBALANCE,
    REPLACED,
    TELEMETRY_RANK,
    UNLOADED,
    CoordinatorLine,
)
from coordinator_model.states import REBALANCE_TIMEOUT, SESSION_EXPIRED

MAX_BYTES: Final = 1024 * 1024
MAX_BROKER_BYTES: Final = 256
"""A longer key is not a broker's name."""
UNKNOWN_WORDING: Final = "line of the coordinator's log in no known wording"
AMBIGUOUS: Final = "line of the coordinator's log that can be read in more than one way"
NOT_PROVIDED: Final = "not provided"
"""What Kafka writes if a client gave no reason."""
_FENCED = "[GroupId {group}] Member {member} fenced from the group because "
_STREAMS_FENCED = "[GroupId {group}] Streams member {member} fenced from the group because "
_LEAVE = " has left group through explicit `LeaveGroup` request; client reason: {reason}"
_SCALA_LEAVE = " through explicit `LeaveGroup`"
_SCALA_MEMBER = "Member[group.instance.id {instance}, member.id {member}] in group {group}"
_PLACE = " (__consumer_offsets-{shard})"
_METADATA = (
    "MemberMetadata(memberId={member}, groupInstanceId={instance}, clientId={client}, clientHost=/{host},"
    " sessionTimeoutMs={}, rebalanceTimeoutMs={}, supportedProtocols={})"
)

# What the line says, and Kafka's format string. A placeholder without a name is not used. The sentences that end with
# two periods do so in Kafka.
_TELLING: Final = (
    (SESSION_EXPIRED, "Member {member} in group {group} has failed, removing it from the group."),
    (SESSION_EXPIRED, "Member {member} in group {group} has failed, removing it from the group"),
    (SESSION_EXPIRED, _FENCED + "the member session expired."),
    (SESSION_EXPIRED, _FENCED + "the member session expired.."),
    (SESSION_EXPIRED, _STREAMS_FENCED + "the member session expired."),
    (SESSION_EXPIRED, _STREAMS_FENCED + "the member session expired.."),
    (REBALANCE_TIMEOUT, _FENCED + "it failed to transition from epoch {} within {}ms."),
    (REBALANCE_TIMEOUT, _STREAMS_FENCED + "it failed to transition from epoch {} within {}ms."),
    (REBALANCE_TIMEOUT, _FENCED + "the classic member failed to join within the rebalance timeout."),
    (REBALANCE_TIMEOUT, _FENCED + "the member failed to sync within timeout."),
    (REBALANCE_TIMEOUT, "Group {group} removed dynamic members who haven't joined: {members}"),
    (PENDING_GONE, "Pending member {member} in group {group} has been removed after session timeout expiration."),
    (PENDING_GONE, "[Group {group}] Pending member {member}" + _LEAVE),
    (PENDING_GONE, "Pending member {member} is leaving group {group}."),
    (
        PENDING_GONE,
        "Pending member with memberId={member} has left group {group} through explicit `LeaveGroup` request",
    ),
    (LEFT, "[Group {group}] Member {member}" + _LEAVE),
    (LEFT, "[GroupId {group}] Dynamic member {member}" + _LEAVE),
    (LEFT, "[GroupId {group}] Static member {member} with instance id {instance}" + _LEAVE),
    (LEFT, "[GroupId {group}] Static member {member} with instance id {instance} left the consumer group."),
    (LEFT, "[GroupId {group}] Member {member} left the consumer group."),
    (LEFT, "[GroupId {group}] Member {member} left the share group."),
    (LEFT, "[GroupId {group}][MemberId {}] Member {member} left the streams group."),
    (LEFT, _SCALA_MEMBER + " has left, removing it from the group"),
    (LEFT, "Member " + _METADATA + " has left group {group}" + _SCALA_LEAVE + "; client reason: {reason}"),
    (
        REPLACED,
        (
            "Static member with groupInstanceId={instance} and unknown member id joins group {group} in {} state."
            " Replacing previously mapped member {member} with this groupInstanceId."
        ),
    ),
    (
        REPLACED,
        (
            "[GroupId {group}] Static member with instance id {instance} re-joins the consumer group using the {}"
            " protocol. Created a new member {} to replace the existing member {member}."
        ),
    ),
    (
        REPLACED,
        (
            "Static member {instance} of group {group} with unknown member id rejoins, assigning new member id {},"
            " while old member id {member} will be removed."
        ),
    ),
    (FENCED, "[GroupId {group}] Static member {member} with instance id {instance} is fenced by existing member {}."),
    (
        FENCED,
        (
            "[GroupId {group}] Static member {member} with instance id {instance} cannot join the group because the"
            " instance id is owned by member {}."
        ),
    ),
    (JOINED, "Pending dynamic member with id {member} joins group {group} in {} state. Adding to the group now."),
    (
        JOINED,
        (
            "Static member with groupInstanceId={instance} and unknown member id joins group {group} in {} state."
            " Created a new member id {member} for this member and added to the group."
        ),
    ),
    (
        JOINED,
        (
            "Static member with groupInstanceId={instance} and unknown member id joins group {group} in {} state."
            " Created a new member id {member} for this member and add to the group."
        ),
    ),
    (JOINED, "Adding new static member {instance} to group {group} with member id {member}."),
    (
        JOINED,
        (
            "Dynamic member with unknown member id joins group {group} in state {}. Created a new member id {member}"
            " and added the member to the group."
        ),
    ),
    (JOINED, "[GroupId {group}] Member {member} joins the consumer group using the {} protocol."),
    (
        JOINED,
        (
            "[GroupId {group}] Static member {member} with instance id {instance} joins the consumer group using the {}"
            " protocol."
        ),
    ),
    (JOINED, "[GroupId {group}] Member {member} joins the share group using the share protocol."),
    (JOINED, "[GroupId {group}][MemberId {member}] Member joins the streams group."),
    (REBALANCE, "Preparing to rebalance group {group} in state {} with old generation {} (reason: {reason})."),
    (
        REBALANCE,
        "Preparing to rebalance group {group} in state {} with old generation {}" + _PLACE + " (reason: {reason})",
    ),
    (GENERATION, "Stabilized group {group} generation {} with {} members."),
    (GENERATION, "Stabilized group {group} generation {}" + _PLACE + " with {} members"),
    (EMPTIED, "Group {group} with generation {} is now empty."),
    (EMPTIED, "Group {group} with generation {} is now empty" + _PLACE),
    (
        LOADED,
        (
            "Finished loading of metadata from __consumer_offsets-{shard} with epoch {} in {}ms where {}ms was spent in"
            " the scheduler. Loaded {} records which total to {} bytes."
        ),
    ),
    (
        LOADED,
        "Finished loading of metadata from __consumer_offsets-{shard} with epoch {} and LoadSummary=LoadSummary({}).",
    ),
    (
        LOADED,
        (
            "Finished loading offsets and group metadata from __consumer_offsets-{shard} in {} milliseconds for epoch"
            " {}, of which {} milliseconds was spent in the scheduler."
        ),
    ),
    (UNLOADED, "Finished unloading metadata for __consumer_offsets-{shard} with epoch {}."),
    (UNLOADED, "Resigned as the group coordinator for partition {shard} in epoch {}"),
)
# These lines are not used. They are listed so that a line in an unknown wording is noticed.
_SILENT: Final = (
    (
        "Dynamic member with unknown member id joins group {} in {} state. Created a new member id"
        " {} and requesting the member to rejoin with this id."
    ),
    (
        "Dynamic member with unknown member id joins group {} in {} state. Created a new member id"
        " {} and request the member to rejoin with this id."
    ),
    (
        "Static Member with unknown member id joins group {} in {} state. Created a new member id {} for this member"
        " and add to the group."
    ),
    "Scheduling loading of offsets and group metadata from __consumer_offsets-{} for epoch {}",
    (
        "[GroupId {}] Dynamic member with unknown member id joins the consumer group. Created a"
        " new member id {} and requesting the member to rejoin with this id."
    ),
    (
        "Assignment received from leader {} for group {} for generation {}. The group has {}"
        " members, {} of which are static."
    ),
    "Assignment received from leader for group {} for generation {}. The group has {} members, {} of which are static.",
    (
        "Static member which joins during Stable stage and doesn't affect the selected protocol"
        " will not trigger a rebalance."
    ),
    "Static member which joins during Stable stage and doesn't affect selectProtocol will not trigger rebalance.",
    "[GroupId {}] Bumped group epoch to {} with metadata hash {}.",
    "[GroupId {}] Bumped group epoch to {}.",
    "[GroupId {}] Computed new metadata hash: {}.",
    "[GroupId {}] Computed a new target assignment for epoch {} with '{}' assignor in {}ms: {}.",
    "[GroupId {}] Computed a new target assignment for epoch {} with '{}' assignor in {}ms.",
    "[GroupId {}] Member {} new assignment state: epoch={}, previousEpoch={}, state={}, assignedPartitions={}.",
    (
        "[GroupId {}] Member {} new assignment state: epoch={}, previousEpoch={}, state={},"
        " assignedPartitions={} and revokedPartitions={}."
    ),
    "[GroupId {}] Member {} updated its subscribed topics to: {}.",
    "[GroupId {}] Member {} updated its subscribed regex to: {}.",
    "[GroupId {}] Converted the {} to a {} group.",
    "[GroupId {}] Creating a simple consumer group via manual offset commit.",
    "[GroupId {}][MemberId {}] Computed new metadata hash: {}.",
    "[GroupId {}][MemberId {}] Configuring the topology {}",
    "[GroupId {}][MemberId {}] Bumped streams group epoch to {} with metadata hash {} and validated topic epoch {}.",
    "[GroupId {}][MemberId {}] Assignment configurations changed to {}. Triggering rebalance.",
    "[GroupId {}][MemberId {}] Member initialized the topology with epoch {}",
    "[GroupId {}][MemberId {}] Member joined with {}",
    "[GroupId {}][MemberId {}] Member updated its member metadata to {}.",
    "[GroupId {}][MemberId {}] Member's new assignment state: {}.",
    "[GroupId={}] Unloaded group metadata for group epoch {}.",
    "[GroupId={}] Unloading group metadata for generation {}.",
    "Loaded {} group {} with {} members.",
    "The following groups were deleted: {}. A total of {} offsets were removed.",
    "Group {} is dead, skipping rebalance stage.",
    "Group {} could not complete rebalance because no members rejoined.",
    "Generated {} tombstone records in {} milliseconds{}",
    "Generated {} tombstone records while cleaning up group metadata in {} milliseconds.",
    "Scheduling loading of metadata from __consumer_offsets-{} with epoch {}",
    "Scheduling unloading of metadata for __consumer_offsets-{} with epoch {}",
    "Started unloading metadata for __consumer_offsets-{} with epoch {}.",
    "Elected as the group coordinator for partition {} in epoch {}",
    "Loading group metadata for {} with generation {}",
    "Unloading group metadata for {} with generation {}",
    "Failed to load metadata from __consumer_offsets-{} with epoch {} due to {}",
    "Failed to unload metadata for __consumer_offsets-{} with epoch {} due to {}",
    "Failed to write empty metadata for group {}: {}",
    "Failed to write records to __consumer_offsets-{} because this broker is no longer the leader of the partition.",
    "Failed to persist metadata for group {} static member {} with group instance id {} due to {}. Reverting to old {}",
    "Ignored load completion from __consumer_offsets-{} because context is in {} state.",
    "Ignored loading metadata from __consumer_offsets-{} since current epoch {} is larger than or equals to {}.",
    "Ignored unloading metadata for __consumer_offsets-{} in epoch {} since {}",
    "Request memberId={} for static member with groupInstanceId={} is fenced by existing memberId={} during {}",
    "Request memberId={} for static member with groupInstanceId={} is fenced by current memberId={} during {}",
    "The write event {} for the timer {} failed due to {}",
    "Starting up.",
    "Startup complete.",
    "Shutting down.",
    "Shutdown complete.",
    "Removed {} expired offsets in {} milliseconds.",
)
_HEAD = re.compile(
    r"\[GroupCoordinator id=\d{1,10}(?: topic=__consumer_offsets partition=(?P<shard>\d{1,10}))?\] "
    r"|\[GroupCoordinator \d{1,10}\]: |\[GroupMetadataManager brokerId=\d{1,10}\] "
)
_PLACES = re.compile(r"\{(\w*)\}")
_SYNC_EXPIRED = re.compile(r"Removing (.*) on pending sync request expiration", re.DOTALL)
_SET = re.compile(r"\[(.*)\]|(?:Hash|ListSet|Linked|Mutable)*Set\d?\((.*)\)", re.DOTALL)
# A member id ends with a uuid; the client id that it begins with may hold commas.
_BETWEEN_MEMBERS = re.compile(r"(?<=-[0-9a-f]{12}), |(?<=^[\w-]{22}), |(?<=, [\w-]{22}), ")


class _Wording(NamedTuple):
    """One of the wordings. ``literals``: the texts before, between and after the values. ``names``: the values' names.

    ``what`` is empty if the line is not used.
    """

    what: str
    literals: tuple[str, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, what: str, text: str) -> "_Wording":
        parts = _PLACES.split(text)
        return cls(what, tuple(parts[0::2]), tuple(parts[1::2]))

    def read(self, message: str) -> tuple[str, ...] | None:
        """Return the values; None: the message is in another wording.

        Raises ``BadField`` if it fits in more than one way, that is, if the first and the last fit differ. A line that
        is not used may fit in any number of ways.
        """
        first, *inner, last = self.literals if len(self.literals) > 1 else (*self.literals, "")
        if not (message.startswith(first) and message.endswith(last)) or len(message) < len(first) + len(last):
            return None
        if not self.names:
            return () if message == first else None
        body = message[len(first) : len(message) - len(last)]
        begins = _first_fit(body, inner)
        if begins is None:
            return None
        if self.what and begins != _last_fit(body, inner):
            raise BadField(AMBIGUOUS)
        ends = [begin + len(literal) for begin, literal in zip(begins, inner, strict=True)]
        return tuple(body[start:end] for start, end in zip([0, *ends], [*begins, len(body)], strict=True))


def _first_fit(body: str, literals: list[str]) -> list[int] | None:
    begins, at = [], 0
    for literal in literals:
        begin = body.find(literal, at)
        if begin < 0:
            return None
        begins.append(begin)
        at = begin + len(literal)
    return begins


def _last_fit(body: str, literals: list[str]) -> list[int]:
    """Return where the literals begin in the last fit. A fit is known to exist."""
    begins, at = [], len(body)
    for literal in reversed(literals):
        at = body.rfind(literal, 0, at)
        begins.append(at)
    return begins[::-1]


_WORDINGS: Final = tuple(_Wording.of(what, text) for what, text in (*_TELLING, *(("", text) for text in _SILENT)))


def parse_coordinator_line(place: SourceRow, value: bytes) -> list[CoordinatorLine]:
    """Read one bare line. Raises ``BadField``, nothing else. A line that is not used makes no event."""
    if len(value) > MAX_BYTES:
        raise BadField("line too long")
    text = clean(value.decode("utf-8", "replace"))
    head = _HEAD.match(text)
    if head is None or not is_coordinator_line(value):
        raise BadField(UNKNOWN_WORDING)
    message = text[head.end() :]
    fits = [(wording, places) for wording in _WORDINGS if (places := wording.read(message)) is not None]
    if not fits:
        raise BadField(UNKNOWN_WORDING)
    if not any(wording.what for wording, _ in fits):
        return []
    if len(fits) > 1:
        raise BadField(AMBIGUOUS)
    wording, places = fits[0]
    named = {name: told for name, told in zip(wording.names, places, strict=True) if name}
    shard = _number(named.get("shard") or head["shard"] or "-1")
    return [_event(place, wording.what, named, shard)]


def _event(place: SourceRow, what: str, named: dict[str, str], shard: int) -> CoordinatorLine:
    group, reason, instance = named.get("group", ""), named.get("reason", ""), named.get("instance")
    if what not in (LOADED, UNLOADED) and not group:
        raise BadField("group: empty")
    members: tuple[str, ...] = (named["member"],) if "member" in named else ()
    if "members" in named:
        members = _members(named["members"])
    if what == REBALANCE and (lost := _SYNC_EXPIRED.fullmatch(reason)) is not None:
        what, members, reason = REBALANCE_TIMEOUT, _members(lost[1]), ""
    if not all(members):
        raise BadField("member id: empty")
    if what == LEFT and instance is not None and instance.endswith(" temporarily"):
        what, instance = LEFT_FOR_A_WHILE, instance.removesuffix(" temporarily")
    return CoordinatorLine(
        place.timestamp_ms,
        TELEMETRY_RANK,
        place.topic,
        place.partition,
        place.offset,
        group,
        place.key_text if len(place.key or b"") <= MAX_BROKER_BYTES else "",
        what,
        members,
        shard,
        _instance(instance),
        "" if reason == NOT_PROVIDED else reason,
        named.get("client", ""),
        named.get("host", ""),
    )


def _members(text: str) -> tuple[str, ...]:
    """Read a set of member ids as Java or Scala writes it."""
    inside = _SET.fullmatch(text)
    if inside is None:
        raise BadField("members: not a set")
    return tuple(_BETWEEN_MEMBERS.split(inside[1] if inside[1] is not None else inside[2]))


def _instance(text: str | None) -> str | None:
    """Read an instance id; Scala writes ``Some(id)`` or ``None``, Java ``null``."""
    if text in (None, "None", "null"):
        return None
    return text.removeprefix("Some(").removesuffix(")") if text.startswith("Some(") else text


def _number(digits: str) -> int:
    if not re.fullmatch(r"-1|[0-9]{1,9}", digits):
        raise BadField("partition: not a number")
    return int(digits)
