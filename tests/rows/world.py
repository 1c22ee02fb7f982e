"""The two logs that a broker writes, row by row: records, and lines of ``kafka.request.logger``."""

from dataclasses import dataclass, field
from typing import Any

from coordinator_model.decode.source_row import OFFSETS, TELEMETRY, SourceRow
from tests.support import request_log

T0_MS = 1_700_000_000_000
PROBE_EVERY_MS = 500


def number_of_probe(line: bytes) -> int | None:
    """Return the number of the probe whose line it is."""
    _, found, rest = line.partition(b'"statesFilter":["probe-')
    return int(rest[: rest.index(b'"')]) if found else None


@dataclass(frozen=True)
class Connection:
    """Where a client is and what it calls itself."""

    client_id: str
    host: str
    port: int


PROBE = Connection(request_log.PROBE_CLIENT, "10.9.9.9", 9_999)


@dataclass
class World:
    """One broker's clock and logs. ``line_delay_ms``: how long an answer takes to be sent, and so its line."""

    line_delay_ms: int = 0
    now_ms: int = T0_MS
    rows: list[SourceRow] = field(default_factory=list)
    _offsets: dict[str, int] = field(default_factory=dict)
    _taken: int = 0
    _probes: int = 0
    _probe_line: bytes = b""

    def __post_init__(self) -> None:
        self._probe()

    # -------------------------------------------------------------- time

    def run(self, duration_ms: int) -> None:
        """Let so many milliseconds pass, with the probes that fall into them."""
        until_ms = self.now_ms + duration_ms
        while (due_ms := T0_MS + self._probes * PROBE_EVERY_MS) <= until_ms:
            self.now_ms = due_ms
            self._probe()
        self.now_ms = until_ms

    def _probe(self) -> None:
        if not self._probe_line:
            self.answer("LIST_GROUPS", PROBE, {"statesFilter": ["probe-0"]}, {"errorCode": 0, "groups": []})
            self._probe_line = self.rows[-1].value or b""
        else:  # the same line but for its number
            line = self._probe_line.replace(b'"probe-0"', b'"probe-%d"' % self._probes)
            self._append(TELEMETRY, "group-telemetry", self.now_ms + self.line_delay_ms, b"broker-1", line)
        self._probes += 1

    # -------------------------------------------------------------- the logs

    def record(self, key: bytes, value: bytes | None) -> None:
        """Append to ``__consumer_offsets``, stamped by the coordinator's clock."""
        self._append(OFFSETS, "__consumer_offsets", self.now_ms, key, value)

    def answer(
        self,
        api: str,
        connection: Connection,
        request: dict[str, Any],
        response: dict[str, Any],
        arrival_ms: int | None = None,
        version: int | None = None,
    ) -> None:
        """Write the line of an answered request; what it was parked is its remote time only as far as it waited."""
        waited_ms = 0 if arrival_ms is None else self.now_ms - arrival_ms
        line = request_log.line(
            api,
            request,
            {"throttleTimeMs": 0, **response},
            client=connection.client_id,
            version=version,
            correlation_id=len(self.rows),
            total_ms=float(waited_ms + self.line_delay_ms),
            remote_ms=float(waited_ms),
            connection=f"10.0.0.1:9092-{connection.host}:{connection.port}-0-1",
            requestQueueTimeMs=0.0,
            localTimeMs=0.0,
            sendTimeMs=float(self.line_delay_ms),
        )
        self._append(TELEMETRY, "group-telemetry", self.now_ms + self.line_delay_ms, b"broker-1", line.encode())

    def _append(self, source: str, topic: str, at_ms: int, key: bytes, value: bytes | None) -> None:
        offset = self._offsets[topic] = self._offsets.get(topic, -1) + 1
        self.rows.append(SourceRow(source, topic, 0, offset, at_ms, key, value))

    def take(self) -> list[SourceRow]:
        """Return the rows that have come to be readable since the last time."""
        fresh = [row for row in self.rows[self._taken :] if row.timestamp_ms <= self.now_ms]
        held = [row for row in self.rows[self._taken :] if row.timestamp_ms > self.now_ms]
        self.rows[self._taken :] = fresh + held
        self._taken += len(fresh)
        return fresh
