"""Turns a line of ``kafka.request.logger`` (DEBUG) into events.

The line is ``Completed request:{json}`` since Kafka 2.8 (KIP-673), and bare: ``shipped`` unwraps it. ``instants``
computes the instants from the times in it.

Here lines are parsed with ``json`` and typed fields, which is slow. Known heartbeats are not parsed (``heartbeats``).
"""

import re
from typing import Any, NamedTuple

from coordinator_model.decode.source_row import SourceRow
from coordinator_model.decode.telemetry.fields import (
    MAX_LINE_BYTES,
    BadField,
    a_dict,
    a_duration_ms,
    a_list,
    a_str,
    an_int,
    clean,
    parse_object,
    str_or_none,
)
from coordinator_model.decode.telemetry.instants import instants
from coordinator_model.decode.telemetry.pushed_metrics import (
    ClientMetrics,
    MetricsReader,
    metrics_bytes,
    poll_age_ms,
    poll_interval_ms,
    tells_of_polls,
    unread,
)
from coordinator_model.decode.telemetry.shipped import NOT_A_LINE, PREFIX
from coordinator_model.errors import Error
from coordinator_model.events import (
    TELEMETRY_RANK,
    ClientSeen,
    CommitRefused,
    ConsumerHeartbeat,
    Event,
    Heartbeat,
    JoinAnswered,
    LeaveAnswered,
    MetricsPushed,
    SyncAnswered,
    Tick,
)

PROBE_CLIENT_ID = "group-monitor-probe"
PROBE_STATE_PREFIX = "probe-"
PROBE_ASKED_PREFIX = "asked-"
PUSH_TELEMETRY = "PUSH_TELEMETRY"
GROUP_KEY = 0
"""The key type of a ``FindCoordinator`` request that asks for a group's coordinator."""
MAX_ASKED = 64
MAX_PROBE_DIGITS = 18
"""This many digits fit into an int64. Anybody may send this request, and Python refuses to read 4,300 digits."""

REFUSED_COMMITS = frozenset({Error.ILLEGAL_GENERATION, Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID})
"""The sender is no longer the member that it names. REBALANCE_IN_PROGRESS (27) is not among them: it tells a current
member to rejoin first."""
MAX_REFUSED_PARTITIONS = 64
"""Partitions kept of a refused commit."""
MAX_CONNECTION = 512
"""A longer text is not a connection. On a crafted text the pattern takes quadratic time, so the length is limited."""
_CONNECTION = re.compile(r"(.*:\d+)-(.*):\d+-\d+(?:-\d+)?")


class _Line(NamedTuple):
    """The fields that the lines of all APIs have. Instants are by the broker's clock."""

    place: SourceRow
    api: str
    api_version: int
    client_id: str
    request: dict[str, Any]
    response: dict[str, Any]
    broker: str
    connection: str
    client_host: str
    software: str | None
    listener: str | None
    principal: str | None
    answer_ms: int
    arrival_ms: int
    applied_ms: int
    remote_ms: int

    @property
    def leave_order_ms(self) -> int:
        """The instant by which a leave is ordered: when it was applied, plus 1 ms, because times are rounded.

        Otherwise it could come before the JoinGroup that was answered just before it on the same connection.
        """
        return min(self.place.timestamp_ms, self.applied_ms + 1)

    def head(self, group: str, order_ms: int | None = None) -> tuple[int, int, str, int, int, str]:
        at_ms = self.place.timestamp_ms if order_ms is None else order_ms
        return (at_ms, TELEMETRY_RANK, self.place.topic, self.place.partition, self.place.offset, group)


def parse_line(place: SourceRow, value: bytes, read_metrics: MetricsReader = unread) -> list[Event]:
    """Read one bare line. Raises ``BadField``, nothing else.

    An API that says nothing about groups makes no events. Neither does the empty group id, which can have no members,
    except for a JoinGroup that was refused because of it.
    """
    if len(value) > MAX_LINE_BYTES:
        raise BadField("line too long")
    if not value.startswith(PREFIX):
        raise BadField(NOT_A_LINE)
    body = value[len(PREFIX) :].decode("utf-8", "replace")
    if body.startswith("RequestHeader("):
        raise BadField("text format of a broker before Kafka 2.8")
    line = _read_envelope(place, parse_object(body))
    return _push(line, read_metrics) if line.api == PUSH_TELEMETRY else _events(line)


def _read_envelope(place: SourceRow, line: dict[str, Any]) -> _Line:
    header = a_dict(line, "requestHeader")
    connection = a_str(line, "connection")
    ends = _CONNECTION.fullmatch(connection) if len(connection) <= MAX_CONNECTION else None
    if ends is None:
        raise BadField("connection: not local:port-remote:port-index")
    information = line.get("clientInformation")
    software = None
    if isinstance(information, dict):
        name, version = str_or_none(information, "softwareName"), str_or_none(information, "softwareVersion")
        software = f"{name or 'unknown'} {version or 'unknown'}"
    times = (a_duration_ms(line, name) for name in ("totalTimeMs", "remoteTimeMs", "responseQueueTimeMs", "sendTimeMs"))
    at = instants(place.timestamp_ms, times)
    return _Line(
        place=place,
        api=a_str(header, "requestApiKeyName"),
        api_version=an_int(header, "requestApiVersion"),
        client_id=str_or_none(header, "clientId") or "",
        request=_body(line, "request"),
        response=_body(line, "response"),
        broker=place.key_text or ends[1],
        connection=connection,
        client_host=ends[2],
        software=software,
        listener=str_or_none(line, "listener"),
        principal=str_or_none(line, "principal"),
        **at._asdict(),
    )


def _body(line: dict[str, Any], name: str) -> dict[str, Any]:
    """Return request or response; if there is none, Kafka writes "" (null in later versions)."""
    return {} if line.get(name) in ("", None) else a_dict(line, name)


def _events(line: _Line) -> list[Event]:
    if not line.response and line.api in _READERS:
        return []  # the channel closed before the request was answered, so the line does not say what happened
    reader = _READERS.get(line.api)
    events = reader(line) if reader else []
    return [event for event in events if event.group or isinstance(event, Tick) or _asks_to_join_nothing(event)]


def _asks_to_join_nothing(event: Event) -> bool:
    """Tell whether a client was refused because it names no group (24)."""
    return isinstance(event, JoinAnswered) and event.error == Error.INVALID_GROUP_ID


def _heartbeat(line: _Line) -> list[Event]:
    request = line.request
    return [
        Heartbeat(
            *line.head(a_str(request, "groupId")),
            a_str(request, "memberId"),
            an_int(request, "generationId"),
            an_int(line.response, "errorCode"),
            line.applied_ms,
            line.arrival_ms,
            line.broker,
            line.remote_ms,
            False,
        )
    ]


def _join(line: _Line) -> list[Event]:
    request, response = line.request, line.response
    protocol = str_or_none(response, "protocolName")
    offered = {a_str(p, "name"): a_str(p, "metadata") for p in a_list(request, "protocols") if isinstance(p, dict)}
    session_timeout_ms = an_int(request, "sessionTimeoutMs")
    members = tuple(
        (a_str(member, "memberId"), str_or_none(member, "groupInstanceId"), a_str(member, "metadata"))
        for member in a_list(response, "members")
        if isinstance(member, dict)
    )
    return [
        JoinAnswered(
            *line.head(a_str(request, "groupId")),
            line.broker,
            an_int(response, "errorCode"),
            line.answer_ms,
            line.arrival_ms,
            a_str(response, "memberId"),
            a_str(request, "memberId"),
            str_or_none(request, "groupInstanceId"),
            session_timeout_ms,
            # JoinGroup v0 has no rebalance timeout: Kafka uses the session timeout for both
            an_int(request, "rebalanceTimeoutMs", session_timeout_ms),
            an_int(response, "generationId", -1),
            str_or_none(response, "protocolType") or str_or_none(request, "protocolType"),
            protocol,
            str_or_none(response, "leader") or "",
            members,
            offered.get(protocol or "", ""),
            line.client_id,
            line.client_host,
            line.connection,
            line.software,
            line.api_version,
            str_or_none(request, "reason") or None,
            line.listener,
            line.principal,
        )
    ]


def _sync(line: _Line) -> list[Event]:
    request = line.request
    return [
        SyncAnswered(
            *line.head(a_str(request, "groupId")),
            line.broker,
            an_int(line.response, "errorCode"),
            line.answer_ms,
            line.arrival_ms,
            a_str(request, "memberId"),
            str_or_none(request, "groupInstanceId"),
            an_int(request, "generationId"),
            bool(a_list(request, "assignments")),
            str_or_none(line.response, "assignment") or "",
        )
    ]


def _leave(line: _Line) -> list[Event]:
    """Read a leave: v0-2 names one member at the top, v3+ a batch with an error for each, v5+ a reason for each."""
    request, response = line.request, line.response
    group, error = a_str(request, "groupId"), an_int(response, "errorCode")
    named = [request] if "memberId" in request else []
    asked = [m for m in a_list(request, "members") if isinstance(m, dict)] or named
    answered = [m for m in a_list(response, "members") if isinstance(m, dict)]
    events: list[Event] = []
    for index, member in enumerate(asked):
        own = answered[index] if index < len(answered) else {}
        events.append(
            LeaveAnswered(
                *line.head(group, line.leave_order_ms),
                line.broker,
                error or an_int(own, "errorCode", 0),
                line.applied_ms,
                a_str(member, "memberId"),
                str_or_none(member, "groupInstanceId"),
                str_or_none(member, "reason"),
                line.connection,
                line.client_id,
                line.client_host,
                line.remote_ms,
            )
        )
    return events


def _consumer_heartbeat(line: _Line) -> list[Event]:
    request, response = line.request, line.response
    group, member_id = a_str(request, "groupId"), str_or_none(request, "memberId") or ""
    asked, error = an_int(request, "memberEpoch"), an_int(response, "errorCode")
    answered = an_int(response, "memberEpoch", 0)
    member_id = str_or_none(response, "memberId") or member_id
    if error == 0 and asked == answered > 0:
        return [
            Heartbeat(
                *line.head(group),
                member_id,
                answered,
                0,
                line.applied_ms,
                line.arrival_ms,
                line.broker,
                line.remote_ms,
                True,
            )
        ]
    order_ms = line.leave_order_ms if asked < 0 else None
    return [
        ConsumerHeartbeat(
            *line.head(group, order_ms),
            line.broker,
            error,
            line.applied_ms,
            line.arrival_ms,
            line.remote_ms,
            member_id,
            str_or_none(request, "instanceId"),
            asked,
            answered,
            an_int(request, "rebalanceTimeoutMs", -1),
            line.client_id,
            line.client_host,
            line.connection,
            line.software,
            line.listener,
            line.principal,
        )
    ]


def _commit(line: _Line) -> list[Event]:
    """Read a refused commit of a client that claims to be a member. Generation -1: an admin client, or `assign`."""
    request, generation = line.request, an_int(line.request, "generationIdOrMemberEpoch", -2)
    if generation == -2:
        generation = an_int(request, "generationId", -1)  # before version 9, and TXN_OFFSET_COMMIT
    refused = _refused_partitions(line.response)
    if not refused or generation < 0:
        return []
    partitions = sorted(refused)
    return [
        CommitRefused(
            *line.head(a_str(request, "groupId")),
            line.broker,
            refused[partitions[0]],
            a_str(request, "memberId"),
            str_or_none(request, "groupInstanceId"),
            generation,
            line.client_id,
            line.client_host,
            line.connection,
            line.api == "TXN_OFFSET_COMMIT",
            tuple(partitions[:MAX_REFUSED_PARTITIONS]),
            max(0, len(partitions) - MAX_REFUSED_PARTITIONS),
        )
    ]


def _refused_partitions(response: dict[str, Any]) -> dict[tuple[str, int], int]:
    """Return the partitions whose commit was refused, each with its error. A topic may have only its id."""
    found = {}
    for topic in a_list(response, "topics"):
        name = str_or_none(topic, "name") or a_str(topic, "topicId") if isinstance(topic, dict) else ""
        for partition in a_list(topic, "partitions") if name else ():
            error = an_int(partition, "errorCode", 0) if isinstance(partition, dict) else 0
            if error in REFUSED_COMMITS:
                found[name, an_int(partition, "partitionIndex")] = error
    return found


def _find_coordinator(line: _Line) -> list[Event]:
    """Read a request of a client that asks for one group. Admin tools ask for many, and producers for transactions."""
    request = line.request
    keys = a_list(request, "coordinatorKeys") or [request.get("key")]
    if an_int(request, "keyType", GROUP_KEY) != GROUP_KEY or len(keys) != 1 or not isinstance(keys[0], str):
        return []
    return [_seen(line, clean(keys[0]))]


def _seen(line: _Line, group: str) -> ClientSeen:
    return ClientSeen(*line.head(group), line.broker, line.client_id, line.client_host)


def _list_groups(line: _Line) -> list[Event]:
    """Read a request of the monitor's own probe. Its states filter has the number that makes lost lines visible.

    The filter also has the probe's name for the broker that it asks, which maps the line's key to that broker.
    """
    if line.client_id != PROBE_CLIENT_ID:
        return []
    probe, asked = None, ""
    for state in a_list(line.request, "statesFilter"):
        if not isinstance(state, str):
            continue
        number = state.removeprefix(PROBE_STATE_PREFIX)
        if len(number) <= MAX_PROBE_DIGITS and number.isascii() and number.isdigit():
            probe = int(number)
        elif state.startswith(PROBE_ASKED_PREFIX) and len(state) <= MAX_ASKED:
            asked = clean(state.removeprefix(PROBE_ASKED_PREFIX))
    return [Tick(*line.head(""), line.broker, probe, connection=line.connection, asked=asked)]


def _push(line: _Line, read_metrics: MetricsReader) -> list[Event]:
    """Read a push that the broker accepted. It refuses pushes that come too often or are too large."""
    if an_int(line.response, "errorCode", -1) != 0:
        return []
    data = metrics_bytes(a_str(line.request, "metrics"))
    if not data:  # the client has none of the metrics that its broker asks for; librdkafka still names a compression
        return []
    terminating = line.request.get("terminating") is True
    for said in read_metrics(data, an_int(line.request, "compressionType")):
        age_ms = poll_age_ms(said)
        if said.group and tells_of_polls(said, age_ms) and not (age_ms is None and terminating):
            return [_pushed(line, said, age_ms)]
        if said.group and not terminating:
            return [_seen(line, said.group)]
    return []


def _pushed(line: _Line, said: ClientMetrics, age_ms: int | None) -> MetricsPushed:
    return MetricsPushed(
        *line.head(said.group),
        line.broker,
        said.member_id,
        line.client_id,
        line.client_host,
        None if age_ms is None else age_ms + max(0, line.place.timestamp_ms - line.arrival_ms),
        str_or_none(line.request, "clientInstanceId") or "",
        None if age_ms is not None else said.polled,
        0 if age_ms is not None else said.interval_ms,
        said.instance_id,
        poll_interval_ms(said),
        said.shown,
    )


_READERS = {
    "HEARTBEAT": _heartbeat,
    "JOIN_GROUP": _join,
    "SYNC_GROUP": _sync,
    "LEAVE_GROUP": _leave,
    "CONSUMER_GROUP_HEARTBEAT": _consumer_heartbeat,
    "SHARE_GROUP_HEARTBEAT": _consumer_heartbeat,  # the same fields where they matter here; no instances
    "STREAMS_GROUP_HEARTBEAT": _consumer_heartbeat,
    "OFFSET_COMMIT": _commit,
    "TXN_OFFSET_COMMIT": _commit,
    "FIND_COORDINATOR": _find_coordinator,
    "LIST_GROUPS": _list_groups,
}
