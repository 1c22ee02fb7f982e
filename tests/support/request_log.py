"""Lines of ``kafka.request.logger`` as the broker writes them: one writer for all tests.

`line` writes any request. The functions below it return request and response of one API each: ``line("SYNC_GROUP",
*sync(...))``. Nothing here uses the parser under test.
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

PREFIX = "Completed request:"
PROBE_CLIENT = "group-monitor-probe"
Exchange = tuple[dict[str, Any], dict[str, Any]]
"""A request and its response."""


class Api(NamedTuple):
    """The key of an API, and the version that current clients send."""

    key: int
    version: int


APIS = {
    "OFFSET_COMMIT": Api(8, 9),
    "FIND_COORDINATOR": Api(10, 4),
    "JOIN_GROUP": Api(11, 9),
    "HEARTBEAT": Api(12, 4),
    "LEAVE_GROUP": Api(13, 5),
    "SYNC_GROUP": Api(14, 5),
    "LIST_GROUPS": Api(16, 5),
    "TXN_OFFSET_COMMIT": Api(28, 5),
    "CONSUMER_GROUP_HEARTBEAT": Api(68, 1),
    "PUSH_TELEMETRY": Api(72, 0),
    "SHARE_GROUP_HEARTBEAT": Api(76, 1),
    "STREAMS_GROUP_HEARTBEAT": Api(88, 0),
}
OTHER = Api(3, 4)
"""Any API that is not in the table."""
_ENCODER = json.JSONEncoder(separators=(",", ":"))
"""Made once: benchmarks write thousands of lines a second."""


def line(api: str, request: Any, response: Any, **how: Any) -> str:
    """Return a line; `how` is passed to `entry`."""
    return PREFIX + _ENCODER.encode(entry(api, request, response, **how))


def entry(
    api: str,
    request: Any,
    response: Any,
    *,
    client: str | None = "client",
    port: int = 5_000,
    version: int | None = None,
    correlation_id: int = 7,
    total_ms: float = 0.5,
    remote_ms: float = 0.0,
    **changes: Any,
) -> dict[str, Any]:
    """Return the JSON of a line, with keys in Kafka's order; `changes` use Kafka's own keys."""
    known = APIS.get(api, OTHER)
    body = {
        "isForwarded": False,
        "requestHeader": {
            "requestApiKey": known.key,
            "requestApiVersion": known.version if version is None else version,
            "correlationId": correlation_id,
            "clientId": client,
            "requestApiKeyName": api,
        },
        "request": request,
        "response": response,
        "connection": f"127.0.0.1:9092-10.0.0.7:{port}-0-2",
        "totalTimeMs": total_ms,
        "requestQueueTimeMs": 0.1,
        "localTimeMs": 0.2,
        "remoteTimeMs": remote_ms,
        "throttleTimeMs": 0,
        "responseQueueTimeMs": 0.0,
        "sendTimeMs": 0.0,
        "securityProtocol": "PLAINTEXT",
        "principal": "User:ANONYMOUS",
        "listener": "PLAINTEXT",
        "clientInformation": {"softwareName": "apache-kafka-java", "softwareVersion": "4.3.1"},
    }
    return body | changes


def heartbeat_line(group: str = "g", member: str = "m1", generation: int = 1, error: int = 0, **how: Any) -> str:
    """A classic heartbeat."""
    return line("HEARTBEAT", *heartbeat(group, member, generation, error=error), **how)


def probe_line(number: int, **how: Any) -> str:
    """The monitor's own probe."""
    return line("LIST_GROUPS", *list_groups(number), **{"client": PROBE_CLIENT, **how})


# ---------------------------------------------------------------------------------------------- asked and answered


def list_groups(number: int) -> Exchange:
    """The request of the monitor's probe."""
    return {"statesFilter": [f"probe-{number}"], "typesFilter": []}, {"throttleTimeMs": 0, "errorCode": 0, "groups": []}


def heartbeat(group: str, member: str, generation: int, *, instance: str | None = None, error: int = 0) -> Exchange:
    """A classic heartbeat."""
    request = {"groupId": group, "generationId": generation, "memberId": member, "groupInstanceId": instance}
    return request, {"throttleTimeMs": 0, "errorCode": error}


def join(
    group: str,
    member: str,
    generation: int,
    *,
    session_ms: int,
    rebalance_ms: int,
    metadata: bytes,
    asked: str | None = None,
    leader: str = "",
    listed: Iterable[tuple[str, str | None]] = (),
    instance: str | None = None,
    reason: str = "",
    error: int = 0,
) -> Exchange:
    """JoinGroup. `asked`: the member id in the request, by default its own; `listed`: the members told to a leader."""
    metadata_text = base64.b64encode(metadata).decode()
    request = {
        "groupId": group,
        "sessionTimeoutMs": session_ms,
        "rebalanceTimeoutMs": rebalance_ms,
        "memberId": member if asked is None else asked,
        "groupInstanceId": instance,
        "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": metadata_text}],
        "reason": reason,
    }
    members = [{"memberId": m, "groupInstanceId": i, "metadata": metadata_text} for m, i in listed]
    response = {
        "throttleTimeMs": 0,
        "errorCode": error,
        "generationId": generation,
        "protocolType": "consumer",
        "protocolName": "range" if error == 0 else None,
        "leader": leader,
        "skipAssignment": False,
        "memberId": member,
        "members": members,
    }
    return request, response


def sync(
    group: str,
    member: str,
    generation: int,
    *,
    assigned: bytes = b"",
    sent: Mapping[str, bytes] | None = None,
    instance: str | None = None,
    error: int = 0,
) -> Exchange:
    """SyncGroup. `sent`: the assignments by member, which only the leader sends."""
    request = {
        "groupId": group,
        "generationId": generation,
        "memberId": member,
        "groupInstanceId": instance,
        "protocolType": "consumer",
        "protocolName": "range",
        "assignments": [
            {"memberId": name, "assignment": base64.b64encode(plan).decode()} for name, plan in (sent or {}).items()
        ],
    }
    response = {
        "throttleTimeMs": 0,
        "errorCode": error,
        "protocolType": "consumer",
        "protocolName": "range",
        "assignment": base64.b64encode(assigned).decode(),
    }
    return request, response


def leave(
    group: str,
    members: Sequence[tuple[str, str | None]],
    *,
    reason: str | None = None,
    errors: Mapping[str, int] | None = None,
    error: int = 0,
) -> Exchange:
    """LeaveGroup of members by id and instance id; `errors` by member id."""
    asked = [{"memberId": m, "groupInstanceId": i, "reason": reason} for m, i in members]
    answered = [{"memberId": m, "groupInstanceId": i, "errorCode": (errors or {}).get(m, 0)} for m, i in members]
    return {"groupId": group, "members": asked}, {"throttleTimeMs": 0, "errorCode": error, "members": answered}


def consumer_heartbeat(
    group: str,
    member: str,
    asked: int,
    epoch: int,
    *,
    rebalance_ms: int = -1,
    instance: str | None = None,
    error: int = 0,
) -> Exchange:
    """ConsumerGroupHeartbeat (KIP-848). `asked`: its epoch; 0 joins, -1 leaves, -2 leaves for a while."""
    request = {
        "groupId": group,
        "memberId": member,
        "memberEpoch": asked,
        "instanceId": instance,
        "rebalanceTimeoutMs": rebalance_ms,
    }
    return request, {"throttleTimeMs": 0, "errorCode": error, "memberId": member, "memberEpoch": epoch}
