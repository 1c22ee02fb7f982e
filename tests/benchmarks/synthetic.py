"""What a coordinator would write and log about made-up classic groups: record bytes and request log lines.

Nothing here uses the decoder under test.
"""

from dataclasses import dataclass
from typing import Any

from tests.support import records, request_log

TOPIC = "orders"
PARTITIONS = 24
"""The partitions of the topic that all groups read."""
REBALANCE_TIMEOUT_MS = 60_000
SUBSCRIPTION = records.subscription([TOPIC])


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


def group_record(group: str, generation: int, members: list[Member], at_ms: int) -> tuple[bytes, bytes]:
    """Return key and value of the GroupMetadata record of a generation; no members: the group became empty."""
    leader, protocol = (members[0].member_id, "range") if members else (None, None)
    listed = [_listed(member, _dealt(number, members)) for number, member in enumerate(members)]
    return records.key(2, group), records.group_metadata("consumer", generation, protocol, leader, at_ms, listed)


def commit_head(group: str) -> bytes:
    """Return the key of a group's commits to `TOPIC`, without the partition."""
    return records.key(1, group) + records.string(TOPIC)


def commit_record(head: bytes, partition: int, offset: int, at_ms: int) -> tuple[bytes, bytes]:
    """Return key and value of an offset commit."""
    return head + records.int32(partition), records.commit_value(offset, at_ms, leader_epoch=5)


def _dealt(number: int, members: list[Member]) -> bytes:
    """Return a member's assignment: all partitions are dealt out."""
    return records.assignment({TOPIC: range(number, max(PARTITIONS, len(members)), len(members))})


def _listed(member: Member, assignment: bytes) -> records.ListedMember:
    return records.ListedMember(
        member.member_id,
        None,
        member.client_id,
        "/" + member.host,
        REBALANCE_TIMEOUT_MS,
        member.session_timeout_ms,
        SUBSCRIPTION,
        assignment,
    )


def heartbeat_line(group: str, member: Member, generation: int, error: int = 0) -> bytes:
    return _line("HEARTBEAT", member, request_log.heartbeat(group, member.member_id, generation, error=error))


def join_line(group: str, member: Member, generation: int, members: list[Member], parked_ms: int) -> bytes:
    """Answer a JoinGroup that was parked for this time; the leader, first of `members`, gets their list."""
    told = request_log.join(
        group,
        member.member_id,
        generation,
        session_ms=member.session_timeout_ms,
        rebalance_ms=REBALANCE_TIMEOUT_MS,
        metadata=SUBSCRIPTION,
        leader=members[0].member_id,
        listed=[(m.member_id, None) for m in members] if member == members[0] else (),
        reason="group is already rebalancing",
    )
    return _line("JOIN_GROUP", member, told, parked_ms)


def sync_line(group: str, member: Member, generation: int, members: list[Member]) -> bytes:
    plans = {m.member_id: _dealt(number, members) for number, m in enumerate(members)}
    sent = plans if member == members[0] else None
    told = request_log.sync(group, member.member_id, generation, assigned=plans[member.member_id], sent=sent)
    return _line("SYNC_GROUP", member, told)


def leave_line(group: str, member: Member) -> bytes:
    told = request_log.leave(group, [(member.member_id, None)], reason="the consumer is being closed")
    return _line("LEAVE_GROUP", member, told)


def probe_line(number: int) -> bytes:
    return _line("LIST_GROUPS", Member(0), request_log.list_groups(number), client=request_log.PROBE_CLIENT)


def _line(
    api: str, member: Member, told: request_log.Exchange, remote_ms: float = 0.0, *, client: str | None = None
) -> bytes:
    changes: dict[str, Any] = {
        "connection": f"10.0.0.1:9092-{member.host}:{40_000 + member.number % 20_000}-0-{member.number % 97}",
        "requestQueueTimeMs": 0.031,
        "responseQueueTimeMs": 0.02,
        "sendTimeMs": 0.081,
        "clientInformation": {"softwareName": "apache-kafka-java", "softwareVersion": "4.1.1"},
    }
    return request_log.line(
        api,
        *told,
        client=client or member.client_id,
        correlation_id=member.number % 1_000,
        total_ms=0.512 + remote_ms,
        remote_ms=0.18 + remote_ms,
        **changes,
    ).encode()
