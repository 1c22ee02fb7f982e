"""One connection to one broker: a blocking socket with a deadline, which sends one request at a time."""

import socket
import ssl
import time
from typing import Any, Final, Self

from kafka.protocol.parser import KafkaProtocol

CLIENT_ID: Final = "group-monitor-connect"
MAX_ANSWER_BYTES: Final = 50_000_000
READ_BYTES: Final = 65_536
HEAD_BYTES: Final = 24


class NotKafkaError(Exception):
    """What the peer sent is not the response of a Kafka broker; `head` is its beginning."""

    def __init__(self, head: bytes) -> None:
        super().__init__(repr(head))
        self.head = head


class Link:
    """A connection. Each of its steps raises `TimeoutError` if it does not end by `deadline_s` (monotonic)."""

    def __init__(self, sock: socket.socket, deadline_s: float) -> None:
        self._socket = sock
        self._deadline_s = deadline_s
        self._protocol = KafkaProtocol(client_id=CLIENT_ID, receive_message_max_bytes=MAX_ANSWER_BYTES)

    @classmethod
    def open(cls, host: str, port: int, deadline_s: float) -> Self:
        """Connect to the first address of the name that accepts; raise `OSError` of many kinds."""
        return cls(socket.create_connection((host, port), timeout=_left_s(deadline_s)), deadline_s)

    def secure(self, context: ssl.SSLContext, host: str) -> dict[str, Any]:
        """Do the TLS handshake; return the peer's certificate, empty if the context does not verify it."""
        self._socket.settimeout(_left_s(self._deadline_s))
        secured = context.wrap_socket(self._socket, server_hostname=host)
        self._socket = secured
        return dict(secured.getpeercert() or {})

    def ask(self, request: Any) -> Any:
        """Send a request, whose version is set, and return the response.

        Raises `NotKafkaError`, `ConnectionResetError` if the peer hangs up without a response, and other `OSError`.
        """
        self._protocol.send_request(request)
        self._socket.settimeout(_left_s(self._deadline_s))
        self._socket.sendall(self._protocol.send_bytes())
        head = b""
        while True:
            self._socket.settimeout(_left_s(self._deadline_s))
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise NotKafkaError(head) if head else ConnectionResetError("the peer hung up")
            head = head or data[:HEAD_BYTES]
            try:
                answers = self._protocol.receive_bytes(data)
            except Exception as error:  # the decoder raises errors of many types when bytes are no response
                raise NotKafkaError(head) from error
            if answers:
                return answers[0][1]

    def allow_until(self, deadline_s: float) -> None:
        """Set the deadline of the next steps."""
        self._deadline_s = deadline_s

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _left_s(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s
