"""Which security protocol a listener speaks: asked of the listener itself, without credentials."""

import ssl
import time
from typing import Final, NamedTuple

from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslHandshakeRequest

from streaming.connection.link import Link, NotKafkaError

STEP_S: Final = 2.0
NO_MECHANISM: Final = "none-of-these"  # a SASL listener answers it with the list of those that it offers
UNSUPPORTED_MECHANISM: Final = 33
ILLEGAL_SASL_STATE: Final = 34  # what a listener without SASL answers (KafkaApis.handleSaslHandshakeRequest)


class Listener(NamedTuple):
    """A security protocol, and the SASL mechanisms that are offered."""

    protocol: str
    mechanisms: tuple[str, ...] = ()


def identify_listener(host: str, port: int, deadline_s: float, *, known_silent: str | None = None) -> Listener | None:
    """Try plaintext, then TLS; None where neither gets an answer of Kafka's.

    `known_silent` (PLAINTEXT or SSL) was tried and is not waited for again.
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
            if "CERTIFICATE" in (error.reason or ""):  # it speaks TLS, and wants to know who we are first
                return Listener("SSL")
        except (OSError, NotKafkaError):
            continue
        else:
            if answer.error_code == ILLEGAL_SASL_STATE:
                return Listener(transport)
            return Listener(f"SASL_{transport}", tuple(sorted(answer.mechanisms)))
    return None


def _trusting_context() -> ssl.SSLContext:
    """Make a context that believes any certificate: nothing of worth is sent through it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
