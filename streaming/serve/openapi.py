"""The OpenAPI 3.1 description of the API, served at `/api/v1/openapi.json`. A test compares it with the routes."""

from typing import Any, Final

from coordinator_model.states import GroupState
from streaming.serve.runbooks import RULES
from streaming.store.lags import STATUSES, UNKNOWN

_REFUSALS: Final = ("400", "401", "404", "421", "500", "503")
"""421: under a host name that is not ours; 503: the database fails."""


def _query(name: str, words: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": words, "schema": schema or {"type": "string"}}


def _get(words: str, parameters: list[dict[str, Any]], schema: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    wrong = {"description": "what is wrong", "content": {"application/json": {"schema": _ref("Error")}}}
    answers = {"200": {"description": words, "content": content}, **dict.fromkeys(_REFUSALS, wrong)}
    return {"get": {"summary": words, "parameters": parameters, "responses": answers}}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(name: str) -> dict[str, Any]:
    return {"type": "array", "items": _ref(name)}


def _object(words: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "description": words, "additionalProperties": True, "properties": properties}


_TEXT: Final = {"type": "string"}
_TEXT_OR_NULL: Final = {"type": ["string", "null"]}
_MS: Final = {"type": "integer", "description": "epoch milliseconds"}
_MS_OR_NULL: Final = {"type": ["integer", "null"], "description": "epoch milliseconds"}
_NUMBER: Final = {"type": "integer"}
_NUMBER_OR_NULL: Final = {"type": ["integer", "null"]}
_CLUSTER: Final = _query("cluster", "only this cluster; needed where several have the group")
_PAGE: Final = [
    _query(
        "limit",
        "how many at most; X-Total-Count: of how many, counted up to 100,000; Link: the next page, if there may be one",
        type="integer",
        minimum=1,
        maximum=10_000,
        default=1_000,
    ),
    _query("offset", "from which on", type="integer", minimum=0, maximum=10_000_000, default=0),
]
_SOURCES: Final = {
    "type": "object",
    "description": "by source (records, request-log, client-report, client-push): how many members it shows",
}
STATES: Final = tuple(state.value for state in GroupState)
"""Kafka's names of a group's states, and ours for one that is not known."""
GROUP_ORDERS: Final = ("trouble", "name")
INCIDENT_ORDERS: Final = ("newest", "severity")
_STATUS: Final = {"type": "string", "enum": [*STATUSES, UNKNOWN]}
_SEVERITY: Final = {"type": "string", "enum": ["info", "warn", "page"]}

OPENAPI: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "info": {"title": "group-monitor", "version": "v1"},
    "paths": {
        "/api/v1/groups": _get(
            "Groups: those with open pages first, then those with open warnings, then by the least headroom",
            [
                _CLUSTER,
                _query("state", "only groups in this state", type="string", enum=[*STATES]),
                _query("sort", "name: an order that stays while pages are read", type="string", enum=[*GROUP_ORDERS]),
                *_PAGE,
            ],
            _list("Group"),
        ),
        "/api/v1/groups/{group}": _get(
            "One group, with open incidents, newest generations and last events",
            [{"name": "group", "in": "path", "required": True, "schema": _TEXT}, _CLUSTER],
            _ref("Group"),
        ),
        "/api/v1/groups/{group}/partitions": _get(
            "How far behind a group is in each of its partitions, by topic and partition. An id that ends in"
            " /partitions is written with %2F",
            [{"name": "group", "in": "path", "required": True, "schema": _TEXT}, _CLUSTER],
            _ref("Partitions"),
        ),
        "/api/v1/incidents": _get(
            "Incidents, newest first",
            [
                _query("state", "open, closed or all", type="string", enum=["open", "closed", "all"]),
                _CLUSTER,
                _query("group", "only this group"),
                _query("rule", "only this rule", type="string", enum=sorted(RULES)),
                _query("severity", "only this severity", **_SEVERITY),
                _query("sort", "severity: the worst first, of the open", type="string", enum=[*INCIDENT_ORDERS]),
                _query("told", "true: sent to receivers that want the severity; false: only recorded", type="boolean"),
                *_PAGE,
            ],
            _list("Incident"),
        ),
        "/api/v1/coverage": _get(
            "What is read of clusters and brokers, and blind windows: when telemetry of a broker is missing, so that"
            " nobody can say why its members went",
            [_query("cluster", "only this cluster")],
            _ref("Coverage"),
        ),
        "/api/v1/quarantine": _get("Rows that could not be understood, newest first", _PAGE, _list("Rejected")),
        "/api/v1/dead-letters": _get("Messages that were given up, newest first", _PAGE, _list("DeadLetter")),
        "/api/v1/openapi.json": _get("This", [], {"type": "object"}),
    },
    "components": {
        "schemas": {
            "Error": _object("What is wrong", error=_TEXT),
            "Group": _object(
                "A group as it is now",
                cluster=_TEXT, group=_TEXT, type=_TEXT, state=_TEXT, state_evidence=_TEXT, generation=_NUMBER,
                protocol_type=_TEXT_OR_NULL, protocol=_TEXT_OR_NULL, leader=_TEXT_OR_NULL, partition=_NUMBER,
                members=_list("Member"), sources=_SOURCES, at_ms=_MS, generations=_list("Generation"),
                open_incidents={"type": "object", "description": "of a list: how many are open, by severity"},
                lag={**_NUMBER_OR_NULL, "description": "messages, of all partitions whose lag is known; null: of none"},
                lag_status={**_STATUS, "type": ["string", "null"], "description": "the worst known of its partitions"},
            ),
            "Partitions": _object(
                "How far behind a group is; complete: all partitions are here, the lag of each with a commit is known",
                partitions=_list("Partition"), complete={"type": "boolean"}, at_ms=_MS_OR_NULL, lag=_NUMBER_OR_NULL,
                status=_STATUS,
                left_out={"type": "integer", "description": "of a group with thousands only the worst are here"},
                topics=_list("TopicLag"),
            ),
            "TopicLag": _object(
                "What all partitions of a topic add up to, also those that are left out",
                topic=_TEXT, partitions=_NUMBER, lag=_NUMBER_OR_NULL,
                lag_ms={**_NUMBER_OR_NULL, "description": "the largest of its partitions"},
                committed=_NUMBER_OR_NULL, start=_NUMBER_OR_NULL, end=_NUMBER_OR_NULL,
                status={**_STATUS, "description": "the worst known of its partitions"}, stalled=_NUMBER,
                unknown={**_NUMBER, "description": "partitions that are not in `lag`"},
            ),
            "Partition": _object(
                "A partition that a group has committed to or owns. What is not known is null, never a number",
                topic=_TEXT, topic_id=_TEXT_OR_NULL, partition=_NUMBER, committed_offset=_NUMBER_OR_NULL,
                committed_ms=_MS_OR_NULL, start_offset=_NUMBER_OR_NULL, end_offset=_NUMBER_OR_NULL,
                lag=_NUMBER_OR_NULL,
                lag_ms={**_NUMBER_OR_NULL, "description": "how long its oldest message has waited, at the least"},
                status=_STATUS, owner=_TEXT_OR_NULL, owner_instance_id=_TEXT_OR_NULL, owner_client_id=_TEXT_OR_NULL,
                owner_host=_TEXT_OR_NULL, owned_since_ms=_MS_OR_NULL, generation=_NUMBER_OR_NULL,
                rate={"type": ["number", "null"], "description": "messages a second, by its last commits"},
                leader_epoch=_NUMBER_OR_NULL, asked_ms=_MS_OR_NULL,
                note={"type": ["string", "null"], "description": "what a partition that stands still looks like"},
                metadata={"type": ["string", "null"], "description": "the head of its newest commit's"},
            ),
            "Generation": _object(
                "A completed generation (of one group only): what it changed, and what its rebalance took",
                generation=_NUMBER, at_ms=_MS, state=_TEXT, cause=_TEXT, members_total=_NUMBER,
                partitions_moved=_NUMBER, began_ms=_MS_OR_NULL, took_ms=_NUMBER_OR_NULL, joining_ms=_NUMBER_OR_NULL,
                waited_for={"type": "array", "items": _TEXT}, waited_for_total=_NUMBER,
            ),
            "Member": _object(
                "A member of a group",
                member_id=_TEXT, instance_id=_TEXT_OR_NULL, client_id=_TEXT_OR_NULL, client_host=_TEXT_OR_NULL,
                liveness={"type": "string", "enum": ["alive", "violated", "unknown"]}, last_heartbeat_ms=_MS_OR_NULL,
                sources={"type": "array", "items": _TEXT, "description": "what shows it, as of a group"},
                poll_age_ms=_NUMBER_OR_NULL, poll_reported_ms=_MS_OR_NULL,
                polls={"type": "object", "description": "its times between polls: how many were told, and their p99.9"},
                pushed={"type": "object", "description": "what else its pushed metrics told last, at pushed_ms"},
                pushed_ms=_MS_OR_NULL,
            ),
            "Incident": _object(
                "An incident as its newest transition left it",
                incident_id=_TEXT, transition=_TEXT, rule=_TEXT, severity=_SEVERITY, cluster=_TEXT, group=_TEXT,
                member_id=_TEXT_OR_NULL, evidence=_TEXT, cause=_TEXT, deadline_ms=_MS_OR_NULL, opened_ms=_MS,
                closed_ms=_MS_OR_NULL, at_ms=_MS, summary=_TEXT,
                told={"type": "boolean", "description": "sent to the receivers that want its severity"},
            ),
            "Coverage": _object(
                "What is read, and what is known to be missing",
                windows=_list("BlindWindow"), brokers=_list("CoveredBroker"), clusters=_list("CoveredCluster"),
            ),
            "CoveredBroker": _object(
                "A broker whose telemetry is read: its newest line, and how late it came",
                cluster=_TEXT, broker=_TEXT, tier=_NUMBER, newest_line_ms=_MS, delay_ms=_MS_OR_NULL,
                covered={"type": "boolean"},
            ),
            "CoveredCluster": _object(
                "The tier of a cluster (0: records only, 1: coordinators' INFO lines too, 2: request log), its groups"
                " and members, and how many of these are of unknown liveness",
                cluster=_TEXT, tier=_NUMBER, groups=_NUMBER, members=_NUMBER, unknown=_NUMBER,
            ),
            "BlindWindow": _object(
                "Lines of a broker between two instants are missing; until_ms null: they still are",
                broker=_TEXT, from_ms=_MS, until_ms=_MS_OR_NULL, why=_TEXT,
            ),
            "Rejected": _object(
                "A row that could not be understood",
                cluster=_TEXT, source=_TEXT, topic=_TEXT, partition=_NUMBER, offset=_NUMBER, timestamp_ms=_MS,
                reason=_TEXT, head={"type": "string", "contentEncoding": "base64"},
            ),
            "DeadLetter": _object(
                "A message that was given up, with its incident's fields",
                receiver=_TEXT, created_ms=_MS, attempts=_NUMBER, last_error=_TEXT_OR_NULL, incident_id=_TEXT,
            ),
        }
    },
}  # fmt: skip
