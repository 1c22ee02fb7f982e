"""Raw requests to one given broker, without a client that would retry, cache or ask another broker."""

import socket
import struct
from typing import Final

_METADATA: Final = 3
_FIND_COORDINATOR: Final = 10
_LIST_GROUPS: Final = 16
_CLIENT_ID: Final = "embedded-broker"
_TIMEOUT_S: Final = 5.0


def live_brokers(port: int) -> set[int]:
    """Return the ids of the brokers that the one at 127.0.0.1:`port` knows to be alive; empty if it does not answer."""
    no_topics = struct.pack(">i", 0)
    try:
        answer = request(port, _METADATA, version=1, body=no_topics)
    except OSError:
        return set()
    ids, at = set(), 4
    for _ in range(*struct.unpack_from(">i", answer)):
        (broker_id,) = struct.unpack_from(">i", answer, at)
        ids.add(broker_id)
        at = _after_string(answer, at + 4) + 4  # host, port
        at = _after_string(answer, at)  # rack
    return ids


def has_coordinator(port: int) -> bool:
    """Tell whether group coordinators are up; the first request makes the cluster create `__consumer_offsets`."""
    group = b"embedded-broker"
    answer = request(port, _FIND_COORDINATOR, version=0, body=struct.pack(">h", len(group)) + group)
    return struct.unpack_from(">h", answer) == (0,)


def list_groups(port: int, client_id: str = _CLIENT_ID) -> None:
    """Make the broker at 127.0.0.1:`port` log one LIST_GROUPS line; raises OSError if it does not answer."""
    request(port, _LIST_GROUPS, version=0, body=b"", client_id=client_id)


def request(port: int, api: int, *, version: int, body: bytes, client_id: str = _CLIENT_ID) -> bytes:
    """Send one request on a new connection, with a header of version 1, and return the answer's body."""
    name = client_id.encode()
    header = struct.pack(">hhih", api, version, 1, len(name)) + name
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT_S) as connection, connection.makefile("rb") as stream:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", _exactly(stream.read(4), 4))
        return _exactly(stream.read(size), size)[4:]  # the correlation id


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise ConnectionError("the broker closed the connection in the middle of an answer")
    return data


def _after_string(data: bytes, at: int) -> int:
    (length,) = struct.unpack_from(">h", data, at)
    return int(at + 2 + max(length, 0))
