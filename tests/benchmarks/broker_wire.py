"""One connection to one broker, and the simplest requests on it: no client library adds to the measured time."""

import socket
import struct

from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.support.requests import JOIN_GROUP, join_group, sized, string

PRODUCE, FETCH, HEARTBEAT, SYNC_GROUP = 0, 1, 12, 14
TOPIC, WIDE_TOPIC = "load", "wide"
WIDE = 100
"""Partitions of the wide topic."""
GROUP = "load"
VALUE = b"x" * 100
SESSION_MS = 1_800_000
"""The longest that a broker allows: nobody expires between two blocks."""


class Wire:
    """Produces, fetches and sends heartbeats, one request at a time; both topics must exist."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")
        batch = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000)
        batch.append(0, None, None, VALUE, [])
        one = struct.pack(">i", 1)
        topic = one + string(TOPIC) + one + struct.pack(">i", 0)
        wide = b"".join(struct.pack(">iqi", number, 0, 1_000) for number in range(WIDE))
        wide = one + string(WIDE_TOPIC) + struct.pack(">i", WIDE) + wide
        self._produce = _frame(PRODUCE, 3, struct.pack(">hhi", -1, 1, 30_000) + topic + sized(bytes(batch.build())))
        limits = struct.pack(">iiiib", -1, 0, 0, 1 << 20, 0)
        self._fetch = _frame(FETCH, 4, limits + topic + struct.pack(">qi", 0, 1_000))
        self._fetch_wide = _frame(FETCH, 4, limits + wide)
        self._heartbeat = _frame(HEARTBEAT, 0, self._join())
        self.heartbeat()

    def produce(self) -> None:
        """Produce a record of 100 bytes, acks=1."""
        answer = self._ask(self._produce)
        at = 4 + 2 + len(TOPIC) + 4 + 4
        _check(struct.unpack_from(">h", answer, at)[0])

    def fetch(self) -> None:
        """Fetch up to 1,000 bytes from the beginning; what is there is answered at once."""
        answer = self._ask(self._fetch)
        at = 4 + 4 + 2 + len(TOPIC) + 4 + 4
        _check(struct.unpack_from(">h", answer, at)[0])

    def fetch_wide(self) -> None:
        """Fetch from 100 empty partitions."""
        answer = self._ask(self._fetch_wide)
        at = 4 + 4 + 2 + len(WIDE_TOPIC) + 4 + 4
        _check(struct.unpack_from(">h", answer, at)[0])

    def heartbeat(self) -> None:
        """Heartbeat as the only member of the group."""
        _check(struct.unpack(">h", self._ask(self._heartbeat))[0])

    def close(self) -> None:
        """Close the connection."""
        self._answers.close()
        self._socket.close()

    def _join(self) -> bytes:
        """Join and sync the group; return the body of a heartbeat."""
        member, error, generation = "", 79, 0
        while error == 79:  # the first answer only gives an id
            body = join_group(GROUP, member_id=member, session_timeout_ms=SESSION_MS)
            answer = self._ask(_frame(JOIN_GROUP, 4, body))
            error, generation = struct.unpack_from(">hi", answer, 4)
            at = 10
            for _ in range(3):  # protocol, leader, member id
                (size,) = struct.unpack_from(">h", answer, at)
                member, at = answer[at + 2 : at + 2 + size].decode(), at + 2 + max(size, 0)
        _check(error)
        heartbeat = string(GROUP) + struct.pack(">i", generation) + string(member)
        answer = self._ask(_frame(SYNC_GROUP, 0, heartbeat + struct.pack(">i", 1) + string(member) + sized(b"")))
        _check(struct.unpack_from(">h", answer)[0])
        return heartbeat

    def _ask(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        (size,) = struct.unpack(">i", self._answers.read(4))
        return self._answers.read(size)[4:]  # the correlation id


def _frame(api: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhi", api, version, 1) + string("load")
    return struct.pack(">i", len(header) + len(body)) + header + body


def _check(error: int) -> None:
    assert error == 0, f"answered with error {error}"
