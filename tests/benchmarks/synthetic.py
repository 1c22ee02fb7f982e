"""What a coordinator would write and log about made-up classic groups: record bytes and request log lines.

Layouts: kafka-facts 1.4 (GroupMetadata key 2, value version 3) and 6.2 (request log). Nothing here comes from the
decoder under test.
"""

import base64
import json
import struct
from dataclasses import dataclass

TOPIC = "orders"
PARTITIONS = 24
"""Of the topic, which all groups read."""
REBALANCE_TIMEOUT_MS = 60_000
SUBSCRIPTION = struct.pack(">hih", 0, 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">i", -1)
HEARTBEAT, JOIN_GROUP, SYNC_GROUP, LIST_GROUPS = 12, 11, 14, 16
_NAMES = {HEARTBEAT: "HEARTBEAT", JOIN_GROUP: "JOIN_GROUP", SYNC_GROUP: "SYNC_GROUP", LIST_GROUPS: "LIST_GROUPS"}
_VERSIONS = {HEARTBEAT: 4, JOIN_GROUP: 9, SYNC_GROUP: 5, LIST_GROUPS: 5}


@dataclass(frozen=True)
class Member:
    """A dynamic member; `number` is unique in its cluster."""

    number: int
    session_timeout_ms: int = 10_000

    @property
    def client_id(self) -> str:
        return f"worker-{self.number}"

    @property
    def member_id(self) -> str:
        return f"worker-{self.number}-5d1f2c3e-0000-4000-8000-{self.number:012d}"

    @property
    def host(self) -> str:
        return f"10.{self.number >> 16 & 255}.{self.number >> 8 & 255}.{self.number & 255}"


def assignment(partitions: list[int]) -> bytes:
    listing = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hih", 0, 1, len(TOPIC)) + TOPIC.encode() + listing + struct.pack(">i", -1)


def group_record(group: str, generation: int, members: list[Member], at_ms: int) -> tuple[bytes, bytes]:
    """Return key and value of the GroupMetadata record of a generation; no members: the group became empty."""
    leader = _string(members[0].member_id) if members else struct.pack(">h", -1)
    protocol = _string("range") if members else struct.pack(">h", -1)
    head = struct.pack(">h", 3) + _string("consumer") + struct.pack(">i", generation) + protocol + leader
    body = b"".join(_member(member, _dealt(number, members)) for number, member in enumerate(members))
    return struct.pack(">h", 2) + _string(group), head + struct.pack(">qi", at_ms, len(members)) + body


def commit_head(group: str) -> bytes:
    """Return the key of a group's commits to `TOPIC`, without the partition."""
    return struct.pack(">h", 1) + _string(group) + _string(TOPIC)


def commit_record(head: bytes, partition: int, offset: int, at_ms: int) -> tuple[bytes, bytes]:
    """Return key and value of an offset commit."""
    return head + struct.pack(">i", partition), struct.pack(">hqihq", 3, offset, 5, 0, at_ms)


def _dealt(number: int, members: list[Member]) -> list[int]:
    """Return a member's partitions: all of them are dealt out."""
    return list(range(number, max(PARTITIONS, len(members)), len(members)))


def _member(member: Member, partitions: list[int]) -> bytes:
    return b"".join(
        [
            _string(member.member_id),
            struct.pack(">h", -1),
            _string(member.client_id),
            _string("/" + member.host),
            struct.pack(">ii", REBALANCE_TIMEOUT_MS, member.session_timeout_ms),
            _bytes(SUBSCRIPTION),
            _bytes(assignment(partitions)),
        ]
    )


def heartbeat_line(group: str, member: Member, generation: int, error: int = 0) -> bytes:
    request = {
        "groupId": group,
        "generationId": generation,
        "memberId": member.member_id,
        "groupInstanceId": None,
    }
    return _line(HEARTBEAT, member, request, {"throttleTimeMs": 0, "errorCode": error})


def join_line(group: str, member: Member, generation: int, members: list[Member], parked_ms: int) -> bytes:
    """Answer a JoinGroup that was parked for so long; the leader, first of `members`, gets their list."""
    metadata = base64.b64encode(SUBSCRIPTION).decode()
    request = {
        "groupId": group,
        "sessionTimeoutMs": member.session_timeout_ms,
        "rebalanceTimeoutMs": REBALANCE_TIMEOUT_MS,
        "memberId": member.member_id,
        "groupInstanceId": None,
        "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
        "reason": "group is already rebalancing",
    }
    listed = [{"memberId": m.member_id, "groupInstanceId": None, "metadata": metadata} for m in members]
    response = {
        "throttleTimeMs": 0,
        "errorCode": 0,
        "generationId": generation,
        "protocolType": "consumer",
        "protocolName": "range",
        "leader": members[0].member_id,
        "skipAssignment": False,
        "memberId": member.member_id,
        "members": listed if member == members[0] else [],
    }
    return _line(JOIN_GROUP, member, request, response, parked_ms)


def sync_line(group: str, member: Member, generation: int, members: list[Member]) -> bytes:
    plans = {m.member_id: base64.b64encode(assignment(_dealt(n, members))).decode() for n, m in enumerate(members)}
    sent = [{"memberId": name, "assignment": plan} for name, plan in plans.items()]
    request = {
        "groupId": group,
        "generationId": generation,
        "memberId": member.member_id,
        "groupInstanceId": None,
        "protocolType": "consumer",
        "protocolName": "range",
        "assignments": sent if member == members[0] else [],
    }
    response = {
        "throttleTimeMs": 0,
        "errorCode": 0,
        "protocolType": "consumer",
        "protocolName": "range",
        "assignment": plans[member.member_id],
    }
    return _line(SYNC_GROUP, member, request, response)


def probe_line(number: int) -> bytes:
    prober = Member(0)
    line = _line(LIST_GROUPS, prober, {"statesFilter": [f"probe-{number}"], "typesFilter": []}, {"groups": []})
    return line.replace(b'"clientId":"worker-0"', b'"clientId":"group-monitor-probe"')


def _line(api: int, member: Member, request: object, response: object, remote_ms: float = 0.0) -> bytes:
    body = {
        "isForwarded": False,
        "requestHeader": {
            "requestApiKey": api,
            "requestApiVersion": _VERSIONS[api],
            "correlationId": member.number % 1_000,
            "clientId": member.client_id,
            "requestApiKeyName": _NAMES[api],
        },
        "request": request,
        "response": response,
        "connection": f"10.0.0.1:9092-{member.host}:{40_000 + member.number % 20_000}-0-{member.number % 97}",
        "totalTimeMs": 0.512 + remote_ms,
        "requestQueueTimeMs": 0.031,
        "localTimeMs": 0.2,
        "remoteTimeMs": 0.18 + remote_ms,
        "throttleTimeMs": 0,
        "responseQueueTimeMs": 0.02,
        "sendTimeMs": 0.081,
        "securityProtocol": "PLAINTEXT",
        "principal": "User:ANONYMOUS",
        "listener": "PLAINTEXT",
        "clientInformation": {"softwareName": "apache-kafka-java", "softwareVersion": "4.1.1"},
    }
    return b"Completed request:" + json.dumps(body, separators=(",", ":")).encode()


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data
