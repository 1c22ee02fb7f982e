"""Free ports on 127.0.0.1."""

import random
import socket
from typing import Final

from streaming.embedded.errors import EmbeddedBrokerError

# Below the range that the kernel uses for outgoing connections (32768 and up on Linux), so that no client can occupy a
# broker's port while that broker restarts.
_CANDIDATES: Final = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Return `count` different ports that nothing listens on now."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(_CANDIDATES, k=len(_CANDIDATES)):
        if len(ports) == count:
            break
        if _is_free(port):
            ports.append(port)
    return ports


def require_free(port: int) -> int:
    """Return `port`; raises EmbeddedBrokerError if something listens on it."""
    if not _is_free(port):
        raise EmbeddedBrokerError(f"port {port} on 127.0.0.1 is in use: choose another one or end what listens there")
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Kafka does: ignore TIME_WAIT
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
