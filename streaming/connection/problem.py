"""What can be wrong with a connection."""

from enum import StrEnum


class Kind(StrEnum):
    """One value for each thing that somebody would do something different about."""

    NAME = "name"
    """The host name does not resolve."""
    CLOSED = "closed"
    """Nothing listens on the port."""
    UNREACHABLE = "unreachable"
    """The network gives no way to the address."""
    NO_ANSWER = "no-answer"
    """Packets or requests vanish: a firewall, a paused broker."""
    NOT_KAFKA = "not-kafka"
    """Something else than Kafka answers."""
    CONTROLLER = "controller"
    """A KRaft controller answers, which serves no clients."""
    LISTENER = "listener"
    """The listener's security protocol is another one than the configured one."""
    CERTIFICATE = "certificate"
    """The broker's certificate is not trusted, expired, or made for another host name."""
    CLIENT_CERTIFICATE = "client-certificate"
    """The broker wants a certificate of the client, or does not accept the one it got."""
    FILES = "files"
    """A local certificate or key file cannot be used."""
    MECHANISM = "mechanism"
    """The listener does not offer the configured SASL mechanism."""
    AUTHENTICATION = "authentication"
    """The broker does not accept user name and password."""
    AUTHORIZATION = "authorization"
    """The principal may not read a topic."""
    ADVERTISED = "advertised"
    """A bootstrap server answers, but no broker can be reached at the address that it advertises."""


TRANSIENT = frozenset({Kind.NAME, Kind.CLOSED, Kind.UNREACHABLE, Kind.NO_ANSWER, Kind.ADVERTISED})


class ConnectionProblem(Exception):
    """The first step that failed on the way to `server`; the text never holds a secret."""

    def __init__(self, kind: Kind, server: str, found: str, advice: str) -> None:
        super().__init__(f"{server}: {found}; {advice}")
        self.kind = kind
        self.server = server
        self.found = found
        self.advice = advice

    @property
    def transient(self) -> bool:
        """Whether waiting may help, because a broker starts or a network recovers."""
        return self.kind in TRANSIENT
