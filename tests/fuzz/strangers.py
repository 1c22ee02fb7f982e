"""What anybody can make the brokers log, and any application can report: rows to mix with those of a capture.

Each has a *neighbour*, a line of the capture that can be read: the same broker wrote it, right before. So strangers
move no clock here. They could, because any line of a broker shows its time.
"""

import base64
import json
from random import Random
from typing import Any

from coordinator_model.brokers.coordinator_check import Proof, proof
from coordinator_model.decode.parse import OFFSETS, REPORTS, TELEMETRY, RejectedRow, SourceRow, parse_row
from coordinator_model.events import ConsumerHeartbeat, Heartbeat, JoinAnswered
from tests.fuzz import values
from tests.fuzz.corpus import Corpus
from tests.support import records as encoder
from tests.support import request_log

CLIENT_TOPIC = "group-client-telemetry"
ANYBODY = (24, 26, 29, 30, 35, 42, -1)
"""Kafka gives these answers before it checks who coordinates and whether there is such a group."""
HIDDEN = ("join-refused", "member-fenced", "zombie-commit")
"""Rules that strangers can rightly cause for any group: they report that somebody is refused."""


def lines(corpus: Corpus, chance: Random, count: int) -> list[tuple[SourceRow, SourceRow]]:
    """Make rows of strangers, each with its neighbour."""
    neighbours = _telling(corpus)
    made = []
    for _ in range(count):
        neighbour = chance.choice(neighbours)
        maker = chance.choice(MAKERS)
        made += [(neighbour, row) for row in maker(corpus, neighbour, chance)]
    return made


def _telling(corpus: Corpus) -> list[SourceRow]:
    return [row for row in corpus.rows if row.source == TELEMETRY and isinstance(read := parse_row(row), list) and read]


def _line(neighbour: SourceRow, api: str, request: Any, response: Any, chance: Random, **more: Any) -> SourceRow:
    # the order of these draws is fixed, so that a case keeps its number
    version, correlation_id = chance.choice([0, 1, 4, 5, 9]), chance.randrange(2**31)
    client = more.pop("client_id", None) or values.name(chance)
    drawn = {
        "connection": f"127.0.0.1:9092-10.6.6.6:{chance.randrange(1_024, 65_536)}-0-{chance.randrange(99)}",
        "principal": chance.choice(["User:ANONYMOUS", "User:mallory", values.name(chance)]),
        "clientInformation": {"softwareName": values.name(chance)[:30], "softwareVersion": "1"},
    }
    how = {"client": client, "version": version, "correlation_id": correlation_id}
    body = request_log.entry(api, request, response, **how, **(drawn | more))
    value = (request_log.PREFIX + values.as_json(body)).encode("utf-8", "surrogatepass")
    return neighbour._replace(value=value)


def _group(corpus: Corpus, chance: Random) -> str:
    """Return a group of the capture, or one that is made up."""
    return chance.choice(corpus.known) if chance.random() < 0.5 else values.name(chance)


def _requests(group: str, member_id: str, chance: Random) -> dict[str, Any]:
    """Return a request of each kind about a group."""
    metadata = base64.b64encode(chance.randbytes(chance.choice([0, 3, 40]))).decode()
    return {
        "HEARTBEAT": {"groupId": group, "generationId": chance.choice([-1, 0, 1, 3, 2**31 - 1]), "memberId": member_id}
        | {"groupInstanceId": None},
        "JOIN_GROUP": {"groupId": group, "sessionTimeoutMs": chance.choice([0, 1, 6_000, 2**31 - 1])}
        | {"rebalanceTimeoutMs": chance.choice([-1, 1, 2**31 - 1]), "memberId": member_id, "groupInstanceId": None}
        | {"protocolType": "consumer", "protocols": [{"name": "range", "metadata": metadata}], "reason": "x" * 300},
        "SYNC_GROUP": {"groupId": group, "generationId": 1, "memberId": member_id, "groupInstanceId": None}
        | {"assignments": []},
        "LEAVE_GROUP": {"groupId": group, "members": [{"memberId": member_id, "groupInstanceId": None, "reason": ""}]},
        "CONSUMER_GROUP_HEARTBEAT": {"groupId": group, "memberId": member_id, "memberEpoch": chance.choice([-1, 0, 7])}
        | {"instanceId": None, "rebalanceTimeoutMs": 1_000},
    }


def _response(error: int, member_id: str) -> dict[str, Any]:
    members = [{"memberId": member_id, "groupInstanceId": None, "errorCode": error}]
    return {"errorCode": error, "memberId": member_id, "memberEpoch": 0, "generationId": -1, "members": members}


def _refused(corpus: Corpus, neighbour: SourceRow, chance: Random) -> list[SourceRow]:
    """Make a request that any broker refuses, whatever it is about."""
    member_id = values.name(chance)
    api, request = chance.choice(list(_requests(_group(corpus, chance), member_id, chance).items()))
    response = _response(chance.choice(ANYBODY), "")
    if api == "JOIN_GROUP":
        response["members"] = []
    client_id = chance.choice(["worker", None])
    return [_line(neighbour, api, request, response, chance, client_id=client_id)] * chance.choice([1, 1, 4])


def _unknown_member(corpus: Corpus, neighbour: SourceRow, chance: Random) -> list[SourceRow]:
    """Make a request as a member that a group does not have, right after its coordinator has answered another one."""
    events = parse_row(neighbour)
    if isinstance(events, RejectedRow) or not events:
        return []
    answer = events[0]
    if not isinstance(answer, Heartbeat | JoinAnswered | ConsumerHeartbeat):
        return []
    if proof(answer, 0, 1) is not Proof.COORDINATES:
        return []  # a coordinator that may still be loading would not give the stranger such an answer
    of_its_shard = [group for group in corpus.known if corpus.shard(group) == corpus.shard(answer.group)]
    group, member_id = chance.choice(of_its_shard), f"stranger-{chance.randrange(10**9)}-{values.name(chance)}"
    api, request = chance.choice(list(_requests(group, member_id, chance).items()))
    errors = {"JOIN_GROUP": (25, 79), "CONSUMER_GROUP_HEARTBEAT": (25, 69)}.get(api, (25,))
    return [_line(neighbour, api, request, _response(chance.choice(errors), member_id), chance)]


def _probe(corpus: Corpus, neighbour: SourceRow, chance: Random) -> list[SourceRow]:
    """Make a ListGroups request under the monitor's own client id, with any number."""
    number = chance.choice([str(chance.randrange(10**9)), "-1", "1" * 5_000, "٣", "9" * 18, values.name(chance)])
    request = {"statesFilter": [f"probe-{number}"] * chance.choice([1, 2]), "typesFilter": []}
    response = {"errorCode": 0, "groups": []}
    more: dict[str, Any] = {"client_id": "group-monitor-probe"}
    if chance.random() < 0.7:  # one of many on a connection: a gap in the numbers shows that lines were lost
        more["connection"] = "127.0.0.1:9092-10.6.6.6:1025-0-1"
    return [_line(neighbour, "LIST_GROUPS", request, response, chance, **more)]


def _asks(corpus: Corpus, neighbour: SourceRow, chance: Random) -> list[SourceRow]:
    """Make FindCoordinator requests about groups of others, or about none."""
    names = [_group(corpus, chance) for _ in range(chance.choice([0, 1, 1, 3]))]
    request = {"key": "", "keyType": chance.choice([0, 0, 1, -1]), "coordinatorKeys": names}
    if chance.random() < 0.5:
        request = {"key": _group(corpus, chance), "keyType": 0}
    response = {"errorCode": 0, "nodeId": 1, "host": "h", "port": 9092}
    client_id = chance.choice(["worker", None])
    return [_line(neighbour, "FIND_COORDINATOR", request, response, chance, client_id=client_id)] * chance.choice(
        [1, 9]
    )


def _other_api(corpus: Corpus, neighbour: SourceRow, chance: Random) -> list[SourceRow]:
    """Make a request of another kind, with the fields of a group's request."""
    request = _requests(_group(corpus, chance), "m", chance)["HEARTBEAT"]
    return [_line(neighbour, values.name(chance)[:40], request, _response(0, "m"), chance)]


def _report(corpus: Corpus, neighbour: SourceRow, chance: Random) -> list[SourceRow]:
    """Make an application's report about a member that is not its own."""
    report: dict[str, Any] = {
        "group_monitor_reporter": 1,
        "group": _group(corpus, chance),
        "member_id": chance.choice([values.name(chance), "m"]),
        "instance_id": None,
        "client_id": "somebody else",
        "poll_age_ms": values.number(chance),
        "max_poll_interval_ms": values.number(chance),
    }
    if chance.random() < 0.3:
        name = chance.choice(list(report))
        report[name] = values.other_type(chance, report[name])
    return [_in_reports(neighbour, values.as_json(report).encode("utf-8", "surrogatepass"))]


def _noise_of_reports(corpus: Corpus, neighbour: SourceRow, chance: Random) -> list[SourceRow]:
    """Make forged lines of a broker, and noise, in the topic where every application may write."""
    forged = chance.choice([row for row in corpus.rows if row.source == TELEMETRY]).value
    noise = json.dumps(values.text(chance)).encode()
    return [_in_reports(neighbour, chance.choice([forged, noise, b"", None, b"\xff" * 100]))]


def _in_reports(neighbour: SourceRow, value: bytes | None) -> SourceRow:
    return neighbour._replace(source=REPORTS, topic=CLIENT_TOPIC, partition=0, key=b"k", value=value)


MAKERS = (_refused, _refused, _unknown_member, _probe, _other_api, _asks, _report, _noise_of_reports)


def own_group(corpus: Corpus, chance: Random) -> list[tuple[SourceRow, SourceRow]]:
    """Make a stranger's own valid group, with names of its choice: it joins, sends heartbeats, and may be deleted.

    It is in a shard without groups of the capture, on the broker that the capture heard first, whoever coordinates the
    others. There is none if every shard has a group.
    """
    taken = {corpus.shard(group) for group in corpus.known}
    if len(taken) == corpus.partitions:
        return []
    group = next(made for made in _candidates(chance) if corpus.shard(made) not in taken)
    broker = next(row.key for row in corpus.rows if row.source == TELEMETRY)
    beside = [row for row in _telling(corpus) if row.key == broker]
    start = chance.randrange(max(1, len(beside) - 20))
    member, client = values.name(chance), values.name(chance)
    requests = _requests(group, member, chance)
    accepted: list[tuple[str, dict[str, Any]]] = [("JOIN_GROUP", requests["JOIN_GROUP"])]
    accepted += [("HEARTBEAT", requests["HEARTBEAT"] | {"generationId": 1})] * chance.choice([3, 15])
    made: list[tuple[SourceRow, SourceRow]] = []
    for neighbour, (api, request) in zip(beside[start:], accepted, strict=False):
        response = _response(0, member) | {"generationId": 1, "leader": member, "protocolName": "range"}
        response["members"] = [] if api != "JOIN_GROUP" else [{"memberId": member, "metadata": ""}]
        made.append((neighbour, _line(neighbour, api, request, response, chance, client_id=client)))
        if api == "JOIN_GROUP":
            made.append((neighbour, _record(corpus, neighbour, group, member, client)))
    if chance.random() < 0.5:
        made.append((made[-1][0], _record(corpus, made[-1][0], group, None, client)))
    return made


def _candidates(chance: Random) -> Any:
    while True:
        yield values.name(chance) + chance.choice(["", str(chance.randrange(99))])


def _record(corpus: Corpus, neighbour: SourceRow, group: str, member: str | None, client: str) -> SourceRow:
    """Return the record of the group with its one member, or its tombstone."""
    value = None
    if member is not None:
        listed = encoder.ListedMember(member, None, client[:9_000], "/10.6.6.6", 60_000, 10_000, b"", b"")
        value = encoder.group_metadata("consumer", 1, "range", member, neighbour.timestamp_ms, [listed])
    key, topic = encoder.key(2, group), corpus.topics[0]
    return SourceRow(OFFSETS, topic, corpus.shard(group), -1, neighbour.timestamp_ms, key, value)
