"""Who listens where, as Linux sees it, and what Spark answers to somebody who has no secret."""

import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

LISTEN = "0A"
RPC_REQUEST, RPC_FAILURE = 3, 5  # org.apache.spark.network.protocol.Message.Type


class Listener(NamedTuple):
    address: IPv4Address | IPv6Address
    port: int


def listeners(pids: Iterable[int]) -> set[Listener]:
    """The TCP addresses that processes of ours listen on."""
    ours = {inode for pid in pids for inode in _sockets(pid)}
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {_listener(row[1]) for row in rows if row[3] == LISTEN and row[9] in ours}


def _sockets(pid):
    with suppress(OSError):  # it has ended meanwhile
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith("socket:["):
                    yield target.removeprefix("socket:[").removesuffix("]")


def _listener(text):
    """`0100007F:2294`: words of four bytes, each in the machine's order."""
    address, _, port = text.partition(":")
    words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
    found = ip_address(b"".join(words))
    return Listener(getattr(found, "ipv4_mapped", None) or found, int(port, 16))


def spark_refusal(listener: Listener) -> str | None:
    """What Spark's transport answers to a request that proves nothing; None where something else listens."""
    body = b"\0" * 16
    message = struct.pack(">bqi", RPC_REQUEST, 1, len(body)) + body
    with socket.create_connection((str(listener.address), listener.port), 5) as connection:
        connection.sendall(struct.pack(">q", 8 + len(message)) + message)
        with suppress(OSError):
            answer = connection.recv(65_536)
            if len(answer) > 21 and answer[8] == RPC_FAILURE:
                return answer[21:].decode(errors="replace")
    return None


def callback_answer(listener: Listener) -> str:
    """What Py4J answers to a call without its token; "" where it hangs up.

    Something else that listens may answer something else, a Python worker its process id before it wants its secret.
    """
    with socket.create_connection((str(listener.address), listener.port), 5) as connection, suppress(OSError):
        connection.sendall(b"c\np0\ntoString\ne\n")
        connection.settimeout(1)
        return connection.recv(65_536).decode(errors="replace")
    return ""


def no_stranger_reaches(found: Iterable[Listener]) -> None:
    """Fail unless Spark and Py4J refuse whoever has no secret, and at least the driver was asked."""
    refusals = [refusal for listener in found if (refusal := spark_refusal(listener))]
    assert len(refusals) >= 2  # driver and block manager; more of a cluster
    assert [refusal for refusal in refusals if "Expected SaslMessage" not in refusal] == []
    answers = {answer for listener in found if (answer := callback_answer(listener)).startswith("!")}
    assert answers == {"!xsAuthentication error: unexpected command.\n"}, answers
