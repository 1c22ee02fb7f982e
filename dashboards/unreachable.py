"""Why an HTTP request failed, as one clause: the cause, which `requests` wraps in up to four exceptions."""

import socket
import ssl
from collections.abc import Iterator

import requests


def reason(error: requests.RequestException) -> str:
    """Return why there was no valid response, in words that contain no credentials."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not accepted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"TLS fails: {cause.reason or 'no TLS there'}"
        if isinstance(cause, socket.gaierror):
            return "the host name does not resolve"
        if isinstance(cause, ConnectionRefusedError):
            return "nothing listens on this port"
        if isinstance(cause, TimeoutError | requests.Timeout):
            return "no answer in time"
        if isinstance(cause, OSError) and cause.strerror:
            return str(cause.strerror)
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"it answers {error.response.status_code}"
    if isinstance(error, requests.exceptions.JSONDecodeError):
        return "what it answers is not JSON"
    return type(error).__name__


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception and all that it wraps: as cause, as context, as urllib3's `reason`, or as an argument."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        cause = waiting.pop(0)
        if isinstance(cause, BaseException) and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            waiting += [getattr(cause, "reason", None), cause.__cause__, cause.__context__, *cause.args]
