"""What the rows of a life show of its coordinators and members."""

import json
from collections.abc import Iterator
from typing import Any

from coordinator_model.brokers.coordinator_check import REFUSALS
from coordinator_model.decode.records import RecordType, decode
from coordinator_model.decode.source_row import CLUSTER, OFFSETS, TELEMETRY, SourceRow
from tests.oracle.life import PROBE, Life

REFUSED = tuple(b'"errorCode":%d' % error for error in sorted(REFUSALS))
SHIPPED_MS = 50
"""The tolerance between a line's own time and the time at which it is shipped."""
HELD_MS = 100
"""A request that is refused because another broker coordinates is answered sooner."""
JOIN_GROUP = b'"requestApiKeyName":"JOIN_GROUP"'
LEAVE_GROUP = b'"requestApiKeyName":"LEAVE_GROUP"'
ACCEPTED = b'"errorCode":0'


def lines_of(life: Life) -> Iterator[dict[str, Any]]:
    """Yield the lines of a life's clients, each with its instant and its broker."""
    for row in life.rows:
        if row.source == TELEMETRY and PROBE not in (row.value or b""):
            where = {"at_ms": row.timestamp_ms, "broker": (row.key or b"").decode()}
            yield json.loads((row.value or b"").partition(b":")[2]) | where


def has_loaded(line: dict[str, Any]) -> bool:
    """Tell whether an answer shows that its broker had loaded the groups when the request arrived.

    A coordinator that loads them answers 0 to heartbeats, and refuses everything else at once.
    """
    error = line["response"].get("errorCode")
    if error in REFUSALS:
        return int(line.get("remoteTimeMs", 0)) >= HELD_MS
    return (error, line["requestHeader"]["requestApiKeyName"]) != (0, "HEARTBEAT")


def begin_with_a_newcomer(life: Life, lines: list[dict[str, Any]]) -> bool:
    """Tell whether the first JoinGroup that had to wait is a newcomer's: it waits whether or not a session has ended.

    A member's waits only if a join phase has begun.
    """
    joins = [line for line in lines if line["requestHeader"]["requestApiKeyName"] == "JOIN_GROUP"]
    held = [line for line in joins if int(line.get("remoteTimeMs", 0)) >= HELD_MS]
    first = min(held, key=lambda line: line["at_ms"] - line["totalTimeMs"], default=None)
    name = "" if first is None else str(first["request"]["memberId"])
    return not name or not any(row.source == OFFSETS and name.encode() in (row.value or b"") for row in life.rows)


def is_named(life: Life, broker: str, from_ms: int, until_ms: int) -> bool:
    """Tell whether metadata named a broker as the leader between two instants."""
    rows = (row for row in life.rows if row.source == CLUSTER and from_ms <= row.timestamp_ms <= until_ms)
    return any(f"broker-{json.loads(row.value or b'')['leaders'][0]}" == broker for row in rows)


def shows_nothing(life: Life, brokers: set[str], from_ms: int, until_ms: int) -> bool:
    """Tell whether brokers answered only probes, no record was written, and metadata named none of them."""
    rows = (row for row in life.rows if from_ms <= row.timestamp_ms <= until_ms)
    theirs = (row for row in rows if row.source == OFFSETS or (row.key or b"").decode() in brokers)
    named = any(is_named(life, broker, from_ms, until_ms) for broker in brokers)
    return not named and all(PROBE in (row.value or b"") for row in theirs)


def coordinates(row: SourceRow) -> bool:
    """Tell whether a broker answered as the coordinator."""
    value = row.value or b""
    response = value.partition(b'"response"')[2]
    return PROBE not in value and not any(refused in response for refused in REFUSED)


def took(row: SourceRow, since_ms: int) -> bool:
    """Tell whether a broker handled a request as coordinator and refused it only after a wait, as for a write."""
    value = row.value or b""
    if PROBE in value or not any(refused in value.partition(b'"response"')[2] for refused in REFUSED):
        return False
    waited_ms = int(json.loads(value.partition(b":")[2]).get("remoteTimeMs", 0))
    return waited_ms >= HELD_MS and row.timestamp_ms - waited_ms >= since_ms


def announces(row: SourceRow, member_id: bytes) -> bool:
    value = row.value or b""
    if row.source == OFFSETS:
        return member_id in value or member_id in (row.key or b"")
    return row.source == TELEMETRY and member_id in value and ACCEPTED in value.partition(b'"response"')[2]


def ends_a_phase(row: SourceRow, member_id: str) -> bool:
    value = row.value or b""
    if row.source == TELEMETRY:
        accepted = JOIN_GROUP in value and ACCEPTED in value.partition(b'"response"')[2]
        return accepted or (member_id.encode() in value and b'"errorCode":25' in value)
    return row.source == OFFSETS and decode(row.key, row.value).type != RecordType.OFFSET_COMMIT


def is_accepted(value: bytes) -> bool:
    response = value.partition(b'"response"')[2]
    return ACCEPTED in response or b'"errorCode":27' in response


def session_end_ms(life: Life, member_id: str, at_ms: int) -> int | None:
    """Return when a classic member's session ends, going by its last accepted request before an instant."""
    timeout_ms = session_timeout_ms(life, member_id, at_ms)
    heard_ms = [line["at_ms"] for line in lines_of(life) if line["at_ms"] <= at_ms and is_beat_of(line, member_id)]
    return None if timeout_ms is None or not heard_ms else heard_ms[-1] + timeout_ms


def session_timeout_ms(life: Life, member_id: str, at_ms: int) -> int | None:
    """Return a classic member's session timeout, by its last JoinGroup before an instant; None: there is none."""
    joins = [
        line for line in lines_of(life) if line["at_ms"] <= at_ms and line["response"].get("memberId") == member_id
    ]
    timeouts_ms = [join["request"]["sessionTimeoutMs"] for join in joins if "sessionTimeoutMs" in join["request"]]
    return timeouts_ms[-1] if timeouts_ms else None


def is_beat_of(line: dict[str, Any], member_id: str) -> bool:
    return is_heartbeat_of(line, member_id) or _is_accepted_beat(line, "SYNC_GROUP", member_id)


def is_heartbeat_of(line: dict[str, Any], member_id: str) -> bool:
    return _is_accepted_beat(line, "HEARTBEAT", member_id) or is_modern_beat_of(line, member_id)


def _is_accepted_beat(line: dict[str, Any], api: str, member_id: str) -> bool:
    is_api = line["requestHeader"]["requestApiKeyName"] == api and line["response"].get("errorCode") in (0, 27)
    return is_api and line["request"].get("memberId") == member_id


def is_modern_beat_of(line: dict[str, Any], member_id: str) -> bool:
    """Tell whether a line is of an accepted heartbeat of KIP-848."""
    modern = line["requestHeader"]["requestApiKeyName"] == "CONSUMER_GROUP_HEARTBEAT"
    return modern and line["response"].get("errorCode") == 0 and line["request"].get("memberId") == member_id


def came_back_ms(lines: list[dict[str, Any]], member_id: str) -> list[int]:
    """Return when the JoinGroups arrived that let a static member's instance in under another member id."""
    named = {line["request"].get("groupInstanceId") for line in lines if line["request"].get("memberId") == member_id}
    return [line["at_ms"] - line["totalTimeMs"] for line in lines if _lets_in(line, named - {None}, member_id)]


def _lets_in(line: dict[str, Any], instances: set[str], member_id: str) -> bool:
    """Tell whether a line is of a JoinGroup that let one of these instances in under another member id."""
    asked, answered = line["request"], line["response"]
    joined = line["requestHeader"]["requestApiKeyName"] == "JOIN_GROUP" and answered.get("errorCode") == 0
    return joined and asked.get("groupInstanceId") in instances and answered.get("memberId") != member_id


def arrived_at(row: SourceRow, at_ms: int) -> bool:
    """Tell whether a line is of a JoinGroup or LeaveGroup that arrived at an instant."""
    value = row.value or b""
    if row.source != TELEMETRY or not (JOIN_GROUP in value or LEAVE_GROUP in value):
        return False
    line = json.loads(value.partition(b":")[2])
    return abs(row.timestamp_ms - line.get("totalTimeMs", 0) - at_ms) <= SHIPPED_MS


def has_one_timeout(row: SourceRow, member_id: str) -> bool:
    text = row.value or b""
    if member_id.encode() not in text:
        return False
    if row.source == OFFSETS:
        value: dict[str, Any] = decode(row.key, row.value).value or {}
        mine = [member for member in value.get("members", []) if member["memberId"] == member_id]
        return any(member["rebalanceTimeout"] == member["sessionTimeout"] for member in mine)
    if JOIN_GROUP not in text:
        return False
    line = json.loads(text.partition(b":")[2])
    asked = line["request"]
    own = line["response"]["memberId"] == member_id
    return own and asked.get("rebalanceTimeoutMs", asked["sessionTimeoutMs"]) == asked["sessionTimeoutMs"]
