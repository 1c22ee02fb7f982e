"""The small facts that a replica keeps about a group.

They are named tuples: cheap and immutable, and their JSON is a list, so they need no code of their own to be stored.
"""

from typing import NamedTuple


class PendingMember(NamedTuple):
    """A member id that was given out with an answer 79 and has not joined yet (KIP-394)."""

    given_ms: int
    until_ms: int
    """When the coordinator forgets it."""


class UnansweredJoin(NamedTuple):
    """A newcomer whose JoinGroup was applied and whose answer was lost."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None
    client_id: str
    client_host: str


class RolledBackReplacement(NamedTuple):
    """A static member's replacement that was not stored in time, see ``rolled_back_replacement``."""

    asked_ms: int
    answered_ms: int
    swapped: bool = False
    """Whether the record that names the successor was read, and the replica has the former member again."""


class Refusal(NamedTuple):
    """A client that is refused again and again with one error, see ``refusals``. A refused join has no member id."""

    error: int
    times: int
    first_ms: int
    repeated_ms: int | None
    """When it had been refused so often that it was no accident; None: not yet."""
    last_ms: int
    client_id: str | None = None
    client_host: str | None = None
    member_id: str | None = None
    instance_id: str | None = None

    @property
    def is_of_others(self) -> bool:
        """Whether it stands for all clients that are counted together."""
        return self.client_id is None and self.member_id is None


class Zombie(NamedTuple):
    """One former member and its refused commits, see ``zombies``.

    With neither client id nor member id it stands for all that are counted together.
    """

    error: int
    commits: int
    first_ms: int
    last_ms: int
    transactional: bool
    known: bool
    """Whether it was seen as a member: any client can claim that it was one."""
    client_id: str | None
    client_host: str | None
    member_id: str | None
    instance_id: str | None
    partitions: list[tuple[str, int]]
    """Topic and partition of each refused commit."""
    left_out: int


class Divergence(NamedTuple):
    """How a record contradicted the replica, see ``divergence``."""

    at_ms: int
    generation: int
    missing: list[str]
    """Members that the replica had and the record does not have."""
    more: list[str]
    """Members that the record has and the replica did not have."""
    different: list[str]
    """Facts that are different, in words."""


class JoiningMember(NamedTuple):
    """A classic member that only a line of the coordinator's own log has named, see ``coordinator_log``."""

    joined_ms: int
    instance_id: str | None


class LoggedRemoval(NamedTuple):
    """What a line of the coordinator's own log says about a member's removal, see ``coordinator_log``."""

    at_ms: int
    what: str
    reason: str
    broker: str


class Violation(NamedTuple):
    """A recent violation, kept to count those that recur, or a removal whose cause is unknown."""

    client: str
    """The name that the client keeps as it restarts, see ``client.who``."""
    at_ms: int
    cause: str
    """The value of a ``Cause``."""


class Rebalance(NamedTuple):
    """A new generation, or one that was announced and never completed."""

    at_ms: int
    generation: int


class SetAside(NamedTuple):
    """A failure of this monitor's own code on a group: all that was known about the group was dropped."""

    since_ms: int
    error: str
    failures: int
    resumed_ms: int | None
    """When a record of the group began a new replica; None: none has come yet."""
