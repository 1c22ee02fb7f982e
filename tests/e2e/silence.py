"""Removals whose cause nothing outside the broker shows: its lines are missing, or they may be.

The rows that are judged come from `compare`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator_model.decode.source_row import OFFSETS, TELEMETRY
from streaming.capture.file import open_text, read_rows
from streaming.embedded.truth import TruthEvent

if TYPE_CHECKING:
    from tests.e2e.compare import Row

SAME_EXPIRY_MS = 15_000  # a report that is further away is of another expiry of the same member
SILENT_MS = 2_000  # the probe makes a line every half second, so a broker without lines for this long has lost some


class Silence:
    """Which members were removed while lines were missing, or may have been, so that nothing outside shows the cause.

    The monitor has to have reported the removal with an unknown cause, and one of these must hold:

    - No line of the broker arrived. An expired member and one that left are removed by the same records
      (`GroupMetadataManager` fences both with `consumerGroupFenceMember`, and a classic group writes its next
      generation). Only the line of a leave tells them apart. The broker lived: it logged the removal. It has to have
      been silent before and after, so that it neither paused nor was late.
    - No heartbeat of the group was accepted since the member joined. A filter that hides heartbeats looks the same.
    """

    def __init__(
        self,
        truth: Iterable[TruthEvent],
        unknown: list[dict],
        lines_ms: Mapping[str, Sequence[int]],
        heard_ms: Mapping[str, Sequence[int]] | None,
    ) -> None:
        """``unknown``: our incidents of removals with an unknown cause; ``heard_ms`` None: it is not known."""
        self._truth = list(truth)
        self._brokers = {(event.kind, event.group, event.member_id, event.at_ms): event.broker for event in self._truth}
        self._unknown, self._lines_ms, self._heard_ms = unknown, lines_ms, heard_ms

    def hides(self, row: "Row") -> bool:
        """Tell whether the cause of a removal is unknown to us, and nothing outside shows it."""
        unknown = any(
            (line["group"], line["member_id"]) == (row.group, row.member_id)
            and abs(line["opened_ms"] - (row.log_ms or 0)) <= SAME_EXPIRY_MS
            for line in self._unknown
        )
        return unknown and (self._has_no_line(row) or self._was_never_heard(row))

    def _has_no_line(self, row: "Row") -> bool:
        log_ms = row.log_ms or 0
        lines_ms = self._lines_ms.get(self._brokers.get((row.rule, row.group, row.member_id, log_ms), ""), ())
        return bool(lines_ms) and not any(abs(at_ms - log_ms) <= SILENT_MS for at_ms in lines_ms)

    def _was_never_heard(self, row: "Row") -> bool:
        log_ms, joins = row.log_ms or 0, (event for event in self._truth if event.kind == "joined")
        joined_ms = [e.at_ms for e in joins if e.member_id == row.member_id and e.at_ms <= log_ms]
        if self._heard_ms is None or not joined_ms:
            return False
        return not any(max(joined_ms) <= at_ms <= log_ms for at_ms in self._heard_ms.get(row.group, ()))


def replaced_unseen(truth: Iterable[TruthEvent], row: "Row", capture: Path) -> bool:
    """Tell whether a coordinator gave no sign of life from a removal until another one had loaded its group.

    No line of it and no record of the group came, so nothing shows the removal: the next one has the member again. A
    static member may also have a successor by then. Records show only the successor, as if it had come in time.
    """
    at_ms, events = row.log_ms or 0, list(truth)
    own = next((e for e in events if (e.group, e.member_id, e.at_ms) == (row.group, row.member_id, at_ms)), None)
    if own is None:
        return False
    loads = (e for e in events if e.kind == "coordinator-loaded" and e.partition == own.partition)
    loaded_ms = next((load.at_ms for load in loads if load.at_ms > at_ms and load.broker != own.broker), None)
    if loaded_ms is None:
        return False
    unseen = [e for e in events if e.group == row.group and at_ms < e.at_ms <= loaded_ms]
    seen_ms = list(lines_by_broker(capture).get(own.broker, ()))
    if not any(_is_successor(e, row.member_id) for e in unseen):
        if any(e.kind in ("generation", "empty") for e in unseen):
            return False
        seen_ms += shown_ms(capture, row.group, own.broker)
    return not any(at_ms <= ms <= loaded_ms for ms in seen_ms)


def _is_successor(event: TruthEvent, member_id: str) -> bool:
    """Tell whether a static member joined that has the instance id of another: it is in the ids of both."""
    uuid_length = len("-00000000-0000-0000-0000-000000000000")
    is_static = event.kind == "joined" and event.line.startswith("Static member")
    return is_static and event.member_id[:-uuid_length] == member_id[:-uuid_length]


def heartbeats_by_group(capture: Path) -> dict[str, list[int]]:
    """Return the instants of the heartbeats that a capture's lines show as accepted, by group."""
    found: dict[str, list[int]] = {}
    with open_text(capture) as lines:
        for row in read_rows(lines):
            if row.source == TELEMETRY and b'HEARTBEAT"' in (value := row.value or b""):
                told = json.loads(value[value.index(b"{") :])
                if told["response"].get("errorCode") == 0:
                    found.setdefault(told["request"].get("groupId", ""), []).append(row.timestamp_ms)
    return found


def lines_by_broker(capture: Path) -> dict[str, list[int]]:
    """Return the instants of the request log's lines in a capture, by broker."""
    found: dict[str, list[int]] = {}
    with open_text(capture) as lines:
        for row in read_rows(lines):
            if row.source == TELEMETRY:
                found.setdefault(row.key_text, []).append(row.timestamp_ms)
    return found


def shown_ms(capture: Path, group: str, broker: str) -> list[int]:
    """Return the instants of a group's records, and of the broker's lines that name the group."""
    in_key = len(group.encode()).to_bytes(2) + group.encode()
    in_line = json.dumps(group).encode()
    with open_text(capture) as lines:
        return [
            row.timestamp_ms
            for row in read_rows(lines)
            if (row.source == OFFSETS and in_key in (row.key or b""))
            or (row.source == TELEMETRY and row.key_text == broker and in_line in (row.value or b""))
        ]


def members_shown_ms(capture: Path, group: str, broker: str, member_id: str) -> list[int]:
    """Return when a group's records, or the broker's lines, showed whether a member is in the group.

    Such lines name the member, or list all members: the JoinGroup answers and the assignments of a leader.
    """
    in_key = len(group.encode()).to_bytes(2) + group.encode()
    in_line, telling = (
        json.dumps(group).encode(),
        (json.dumps(member_id).encode(), b'"members":[{', b'"assignments":[{'),
    )
    with open_text(capture) as lines:
        return [
            row.timestamp_ms
            for row in read_rows(lines)
            if (row.source == OFFSETS and in_key in (row.key or b""))
            or (
                row.source == TELEMETRY
                and row.key_text == broker
                and in_line in (value := row.value or b"")
                and any(sign in value for sign in telling)
            )
        ]
