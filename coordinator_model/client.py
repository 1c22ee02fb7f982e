"""Rules for which members are the same client, used for removals, incidents, generations and audits.

A client that restarts gets another member id. It is recognized by its instance id. Without one, it is recognized by its
member id, its connection, or its client id and host, which other clients may share.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self


class OnHost(Protocol):
    """What tells clients apart if their lines name no member."""

    @property
    def client_id(self) -> str | None:
        """Its ``client.id``."""

    @property
    def client_host(self) -> str | None:
        """The host it connects from."""


class Client(OnHost, Protocol):
    """What tells clients apart. Members, incidents and the members of a view have these attributes."""

    @property
    def member_id(self) -> str | None:
        """Its id as a member."""

    @property
    def instance_id(self) -> str | None:
        """Its ``group.instance.id``."""

    @property
    def connection(self) -> str | None:
        """The connection it has with the coordinator."""


class ShownClient(NamedTuple):
    """The client of a member in JSON. A field is None if the JSON does not have it."""

    member_id: str | None
    instance_id: str | None
    client_id: str | None
    client_host: str | None
    connection: str | None

    @classmethod
    def of(cls, member: Mapping[str, Any]) -> Self:
        """Read it from a member of a view or of a membership."""
        return cls(*(member.get(name) for name in cls._fields))


Name = tuple[str | None, ...]


def names_of(client: Client, *, alone: bool = True) -> set[Name]:
    """Return the names of a client: its instance id, or else its member id, its connection, and client id and host.

    ``alone``: no other client has that id on that host.
    """
    if client.instance_id is not None:
        return {("instance", client.instance_id)}
    names: set[Name] = {("member", client.member_id)}
    if client.connection is not None:
        names.add(("connection", client.connection))
    if alone and client.client_id:
        names.add(("client", *on_host(client)))
    return names


def is_same_client(one: Client, other: Client, *, alone: bool) -> bool:
    """Tell whether two members are one client, by any of their names; ``alone``: no other client shares id and host."""
    return not names_of(one, alone=alone).isdisjoint(names_of(other, alone=alone))


def on_host(client: OnHost) -> tuple[str, str]:
    """Return a client's id and host. Clients that share both cannot be distinguished."""
    return client.client_id or "", client.client_host or ""


def lasting_name(client: Client) -> tuple[str, str]:
    """Return the one name that a client keeps as it restarts: its instance id, else its client id and its host."""
    return (client.instance_id, "") if client.instance_id else on_host(client)


def who(client: Client) -> str:
    """Return the lasting name as one string, under which a client is counted across restarts."""
    return client.instance_id or "\n".join(on_host(client))
