"""What can be wrong with a connection."""

from enum import StrEnum


class Kind(StrEnum):
    """Kinds of problems, one for each different remedy."""

    NAME = "name"
    """The host name does not resolve."""
    CLOSED = "closed"
    """Nothing listens on the port."""
    UNREACHABLE = "unreachable"
    """The network has no route to the address."""
    NO_ANSWER = "no-answer"
    """Packets or requests are not answered: a firewall, a paused broker."""
    NOT_KAFKA = "not-kafka"
    """Something other than Kafka answers."""
    CONTROLLER = "controller"
    """A KRaft controller answers, which serves no clients."""
    LISTENER = "listener"
    """The listener's security protocol differs from the configured one."""
    CERTIFICATE = "certificate"
    """The broker's certificate is not trusted, has expired, or is for another host name."""
    CLIENT_CERTIFICATE = "client-certificate"
    """The broker requires a client certificate, or does not accept ours."""
    FILES = "files"
    """A local certificate or key file cannot be used."""
    MECHANISM = "mechanism"
    """The listener does not offer the configured SASL mechanism."""
    AUTHENTICATION = "authentication"
    """The broker does not accept the user name and password."""
    AUTHORIZATION = "authorization"
    """The principal may not read a topic."""
    ADVERTISED = "advertised"
    """A bootstrap server answers, but no broker can be reached at the address that it advertises."""


TRANSIENT = frozenset({Kind.NAME, Kind.CLOSED, Kind.UNREACHABLE, Kind.NO_ANSWER, Kind.ADVERTISED})


class ConnectionProblem(Exception):
    """The first step that failed on the way to `server`; the message never contains a secret."""

    def __init__(self, kind: Kind, server: str, found: str, advice: str) -> None:
        super().__init__(f"{server}: {found}; {advice}")
        self.kind = kind
        self.server = server
        self.found = found
        self.advice = advice

    @property
    def transient(self) -> bool:
        """Whether it may help to wait, because a broker starts or a network recovers."""
        return self.kind in TRANSIENT
