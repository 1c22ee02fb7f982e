"""Which security protocol a listener speaks. The listener itself is asked, without credentials."""

import ssl
import time
from typing import Final, NamedTuple

from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslHandshakeRequest

from streaming.connection.link import Link, NotKafkaError

STEP_S: Final = 2.0
NO_MECHANISM: Final = "none-of-these"  # a SASL listener answers with the list of mechanisms that it offers
UNSUPPORTED_MECHANISM: Final = 33
ILLEGAL_SASL_STATE: Final = 34  # the answer of a listener without SASL (KafkaApis.handleSaslHandshakeRequest)


class Listener(NamedTuple):
    """A listener's security protocol, and the SASL mechanisms that it offers."""

    protocol: str
    mechanisms: tuple[str, ...] = ()


def identify_listener(host: str, port: int, deadline_s: float, *, known_silent: str | None = None) -> Listener | None:
    """Try plaintext, then TLS; return None if neither gets a response from Kafka.

    `known_silent` (PLAINTEXT or SSL) got no response before and is not tried again.
    """
    for transport in ("PLAINTEXT", "SSL"):
        if transport == known_silent:
            continue
        until_s = min(deadline_s, time.monotonic() + STEP_S)
        try:
            with Link.open(host, port, until_s) as link:
                if transport == "SSL":
                    link.secure(_trusting_context(), host)
                link.ask(ApiVersionsRequest(version=0))
                answer = link.ask(SaslHandshakeRequest(version=1, mechanism=NO_MECHANISM))
        except ssl.SSLError as error:
            if "CERTIFICATE" in (error.reason or ""):  # it speaks TLS and requires a client certificate
                return Listener("SSL")
        except (OSError, NotKafkaError):
            continue
        else:
            if answer.error_code == ILLEGAL_SASL_STATE:
                return Listener(transport)
            return Listener(f"SASL_{transport}", tuple(sorted(answer.mechanisms or ())))
    return None


def _trusting_context() -> ssl.SSLContext:
    """Make a context that trusts any certificate; no secret is sent over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
