"""What `serve` needs besides its database and its port: receivers with their secrets, and its certificate."""

import ssl
from pathlib import Path

from streaming.config.settings import ConfigError, Serve, Settings
from streaming.serve.notify.base import Receiver
from streaming.serve.notify.receivers import receivers_of


def check_needs(settings: Settings) -> list[Receiver]:
    """Return the receivers; raise `ConfigError` about the first file that cannot be read or used."""
    settings.serve.heartbeat_address()
    _check_certificate(settings.serve)
    return receivers_of(settings)


def _check_certificate(serve: Serve) -> None:
    if serve.tls_certfile is None or serve.tls_keyfile is None:
        return
    for name, path in (("tls_certfile", serve.tls_certfile), ("tls_keyfile", serve.tls_keyfile)):
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(f"[serve] {name}: {path}: {error.strerror}") from None
    try:  # without a password OpenSSL would ask for that of an encrypted key at the terminal
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(serve.tls_certfile, serve.tls_keyfile, password="")
    except ssl.SSLError as error:
        wanted = "a certificate and its key (PEM, not encrypted) are needed"
        raise ConfigError(f"[serve] tls_certfile, tls_keyfile: {wanted}: {error}") from None
