"""Which leaves in the brokers' logs were poll breaches: what the consumers' own processes were doing at that time.

A broker's log names the reason only for Java consumers. So the truth is made of three facts: the leave in the broker's
log, the consumer's own report that it had not polled for its limit (`stalled`, or frozen as a whole), and that nobody
closed it.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from coordinator_model.decode.telemetry.pushed_metrics import metrics_bytes
from streaming.capture.file import open_text, read_rows
from streaming.client_metrics.otlp import read_metrics
from streaming.embedded.truth import LEFT, POLL_TIMEOUT_REASON, TruthEvent

EARLY_MS, LATE_MS = 1_000, 6_000
"""A client counts from its last poll, some time before it is told to stall; librdkafka leaves when it has revoked."""
EXCEEDED = "_MAX_POLL_EXCEEDED"
"""librdkafka's error, which the application gets with its first poll after its limit."""
NO_COORDINATOR = (14, 15, 16)
UUID_CHARS = 36
JOIN_MS = 1_000
"""By how much less than its limit a member that overslept may have been in the group: a JoinGroup takes time."""
PUSH_GAP_MS = 2_000
"""How much later than a push ended the next one may begin: otherwise one between them is missing."""
ASKED_MS = 20
"""How much before the log's line the request of a leave may seem to come: its line has rounded times."""
NEXT_COMMAND_MS = 100
"""A consumer that is told to stall while it stalls does so again before it polls."""

ENDS = {"polling": {"stalled"}, "thaw": {"freeze"}, "kill": {"stalled", "freeze"}, "start": {"stalled", "freeze"}}
"""Events and actions, and which silence each ends."""


@dataclass
class _Silence:
    """A time in which one client did not poll."""

    client: str
    begin_ms: int
    end_ms: int
    limit_ms: int


class Sleepers:
    """The members that had not polled for their limit, by the consumers' own reports and by what was done to them."""

    def __init__(self, told: list[dict], actions: list[dict], names: Mapping[str, str] = MappingProxyType({})) -> None:
        """``names``: member id to client, for members that never reported an assignment."""
        self._silences = _silences(told, actions)
        self._names = {**names, **{event["member_id"]: event["client"] for event in told if event.get("member_id")}}
        self._closed = [(action["client"], action["at_ms"]) for action in actions if action["action"] == "close"]
        self._told = sorted(told, key=lambda event: event["at_ms"])

    def overslept(self, member_id: str, at_ms: int) -> bool:
        """Tell whether a member that left at an instant had not polled for its limit, and nobody had closed it."""
        return self.limit_passed_ms(member_id, at_ms) is not None

    def limit_passed_ms(self, member_id: str, at_ms: int) -> int | None:
        """Return when the limit of a member that left at an instant had passed since its last poll, None if not."""
        client = self._names.get(member_id, member_id[: -UUID_CHARS - 1])
        mine = (silence for silence in self._silences if silence.client == client)
        passed = (
            silence.begin_ms + silence.limit_ms
            for silence in mine
            if silence.limit_ms  # a client that never spoke has reported no limit
            and silence.begin_ms + silence.limit_ms - EARLY_MS <= at_ms <= self._revoked_ms(silence) + LATE_MS
            and not any(name == client and silence.begin_ms <= ms <= at_ms for name, ms in self._closed)
        )
        return next(passed, None)

    def _revoked_ms(self, silence: _Silence) -> int:
        """Return when a client could leave after a silence: when it polled, or when it revoked its partitions.

        The poll that returns librdkafka's error need not revoke them. The client may sleep again before the next one.
        """
        later = [e for e in self._told if e["client"] == silence.client and e["at_ms"] >= silence.end_ms]
        error = next((e for e in later if e["event"] == "error"), None)
        if error is None or EXCEEDED not in error["text"] or error["at_ms"] > silence.end_ms + NEXT_COMMAND_MS:
            return silence.end_ms
        change = next((e for e in later if e["event"] in ("revoked", "assigned")), error)
        return change["at_ms"] if change["event"] == "revoked" else silence.end_ms


def slept(truth: Iterable[TruthEvent], sleepers: Sleepers) -> list[TruthEvent]:
    """Return the leaves of members that had not polled for their limit; those of Java say so."""
    leaves = [event for event in truth if event.kind in (LEFT, "left-temporarily")]
    return [
        leave
        for leave in leaves
        if POLL_TIMEOUT_REASON in leave.detail or sleepers.overslept(leave.member_id, leave.at_ms)
    ]


def _silences(told: list[dict], actions: list[dict]) -> list[_Silence]:
    """Return stalls, which consumers report, and freezes, which we do; one may be in the other, a kill ends both.

    A silence that nothing ends lasts until the last step: a stalled consumer that is closed never polls again.
    """
    limits = {event["client"]: event["limit_ms"] for event in told}
    steps = [(event["at_ms"], event["client"], event["event"]) for event in told]
    steps += [(action["at_ms"], action["client"], action["action"]) for action in actions if "client" in action]
    found, since, ended = [], dict[str, int](), dict[str, _Silence]()
    why: dict[str, set[str]] = defaultdict(set)
    for at_ms, client, what in sorted(steps):
        if what in ("stalled", "freeze"):
            before = ended.get(client)
            goes_on = before is not None and at_ms - before.end_ms <= NEXT_COMMAND_MS
            since.setdefault(client, before.begin_ms if before is not None and goes_on else at_ms)
            why[client].add(what)
            continue
        why[client] -= ENDS.get(what, set())
        if what in ENDS and client in since and not why[client]:
            found.append(_Silence(client, since.pop(client), at_ms, limits.get(client, 0)))
            ended[client] = found[-1]
    last_ms = max((at_ms for at_ms, _, _ in steps), default=0)
    return found + [_Silence(client, begin_ms, last_ms, limits.get(client, 0)) for client, begin_ms in since.items()]


def returns(capture: Path, leaves: list[TruthEvent]) -> set[TruthEvent]:
    """Return leaves whose client, by a later line, overslept: in for its limit, and back on its connection.

    Only the leave's own line counts, and what came after: a KIP-848 member keeps its id, and may leave more than once.
    A member that was in for less had polled to be let in, as far as lines show, and left on purpose, as with
    ``unsubscribe()``. That its client was in before under another id, on another connection, does not show that it is
    the same process.
    """
    in_since: dict[str, tuple[int, int]] = {}
    left_on: dict[str, TruthEvent] = {}
    back: set[TruthEvent] = set()

    def goes(member_id: str, at_ms: int, connection: str, took_ms: float) -> None:
        joined_ms, limit_ms = in_since.pop(member_id, (0, 0))
        asked_ms = at_ms - took_ms - ASKED_MS
        said = [leave for leave in leaves if leave.member_id == member_id and asked_ms <= leave.at_ms <= at_ms]
        if said and at_ms - joined_ms >= limit_ms - JOIN_MS:
            left_on[connection] = max(said, key=lambda leave: leave.at_ms)

    for at_ms, line in _lines(capture):
        request, connection = line["request"], line["connection"]
        api = line["requestHeader"]["requestApiKeyName"]
        before, joins = left_on.get(connection), (at_ms, request.get("rebalanceTimeoutMs", 0))
        if api == "LEAVE_GROUP":
            for member in request.get("members", [request]):
                goes(member["memberId"], at_ms, connection, line["totalTimeMs"])
        elif api == "JOIN_GROUP" and line["response"]["errorCode"] == 0:
            in_since.setdefault(line["response"].get("memberId", ""), joins)
            back |= {before} if before is not None else set()
        elif api == "CONSUMER_GROUP_HEARTBEAT":
            if request["memberEpoch"] < 0:
                goes(request["memberId"], at_ms, connection, line["totalTimeMs"])
            elif request["memberEpoch"] == 0:
                in_since.setdefault(request["memberId"], joins)  # even if no coordinator accepts it for a while
                back |= {before} if before is not None and before.member_id == request["memberId"] else set()
    return back


def polled_in_time(capture: Path, leaves: Iterable[TruthEvent]) -> set[TruthEvent]:
    """Return leaves whose client pushed that it had polled in an interval that began within its limit before it left.

    That poll may have been in time: librdkafka pushes only whether it polled since its last push. A KIP-848 client that
    unsubscribed does not send heartbeats either until its next poll revokes its partitions
    (``rd_kafka_cgrp_consumer_serve``). A poll after a whole limit without one is not in time.
    """
    limits: dict[str, int] = {}
    pushes: dict[str, list[tuple[int, int, bool]]] = defaultdict(list)
    instances: dict[str, str] = {}  # a classic member that has left is not named in its client's pushes
    for at_ms, line in _lines(capture):
        request, api = line["request"], line["requestHeader"]["requestApiKeyName"]
        if api == "CONSUMER_GROUP_HEARTBEAT" and request["memberEpoch"] == 0:
            limits[request["memberId"]] = request["rebalanceTimeoutMs"]
        elif api == "JOIN_GROUP" and line["response"]["errorCode"] == 0:
            limits[line["response"].get("memberId", "")] = request.get("rebalanceTimeoutMs", 0)
        elif api == "PUSH_TELEMETRY":
            for said in read_metrics(metrics_bytes(request["metrics"]), request["compressionType"]):
                if said.polled is not None:
                    instance = request.get("clientInstanceId") or said.member_id
                    instances.setdefault(said.member_id, instance)
                    pushes[instance].append((at_ms - said.interval_ms, at_ms, said.polled))
    in_time = set()
    for leave in leaves:
        mine, limit_ms = pushes[instances.get(leave.member_id, "")], limits.get(leave.member_id, 0)
        if leave.at_ms - _last_in_time_ms(mine, leave, limit_ms) < limit_ms - JOIN_MS:
            in_time.add(leave)
    return in_time


def _last_in_time_ms(pushes: list[tuple[int, int, bool]], leave: TruthEvent, limit_ms: int) -> int:
    """Return when the last interval began in which a client polled and may have done so in time; 0: in none."""
    last_ms, due_ms, until_ms = 0, None, 0
    for from_ms, at_ms, polled in pushes:
        if from_ms > until_ms + PUSH_GAP_MS:
            due_ms = None  # it may have polled in between
        until_ms = at_ms
        if polled and from_ms < leave.at_ms and (due_ms is None or from_ms < due_ms):
            last_ms, due_ms = from_ms, at_ms + limit_ms
    return last_ms


def names_of(capture: Path) -> dict[str, str]:
    """Return the client of each KIP-848 member from the lines of its heartbeats: its id does not contain it."""
    return {
        line["request"]["memberId"]: line["requestHeader"]["clientId"]
        for _, line in _lines(capture)
        if line["requestHeader"]["requestApiKeyName"] == "CONSUMER_GROUP_HEARTBEAT"
    }


def refused(capture: Path) -> list[tuple[str, int]]:
    """Return the leaving KIP-848 heartbeats that a broker refused: member id and instant of the line."""
    return [
        (line["request"]["memberId"], at_ms)
        for at_ms, line in _lines(capture)
        if line["requestHeader"]["requestApiKeyName"] == "CONSUMER_GROUP_HEARTBEAT"
        and line["request"]["memberEpoch"] < 0
        and line["response"]["errorCode"] in NO_COORDINATOR
    ]


def _lines(capture: Path) -> Iterator[tuple[int, dict]]:
    """Yield the lines of requests in order: a leave and the join right after it can share a millisecond."""
    with open_text(capture) as rows:
        lines = [row for row in read_rows(rows) if row.source == "telemetry"]
    for row in sorted(lines, key=lambda row: (row.timestamp_ms, row.partition, row.offset)):
        value = row.value or b""
        yield row.timestamp_ms, json.loads(value[value.index(b"{") :])
