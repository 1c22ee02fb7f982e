"""The `kafka-acls` commands for the monitor's principal, and for those that write telemetry."""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from streaming.config.kafka import READER_GROUP_PREFIX, Kafka


class Grant(NamedTuple):
    """Rights for one principal, and what they are for."""

    why: str
    principal: str
    operations: Sequence[str]
    resources: Sequence[str]

    def command(self, kafka: Kafka) -> str:
        """Return the command that grants these rights."""
        base = ["kafka-acls", "--bootstrap-server", kafka.bootstrap_servers, "--add", "--allow-principal"]
        operations = [option for name in self.operations for option in ("--operation", name)]
        return shlex.join([*base, f"User:{self.principal}", *operations, *self.resources])


def grants(kafka: Kafka) -> list[Grant]:
    """Return all rights that have to be granted. BROKER and APP stand for users that only the operator knows.

    The monitor joins no group and writes nothing. Its probe (ListGroups) needs no right: without one the response is
    empty, and the probe does not use the response.
    """
    monitor = kafka.sasl_username or "MONITOR"  # with a client certificate only the broker knows the user's name
    prefixed = ["--resource-pattern-type", "prefixed", "--group", READER_GROUP_PREFIX]
    return [
        Grant(
            "read the records and the telemetry; DescribeConfigs lets `doctor` check the settings of the topics",
            monitor,
            ("Read", "Describe", "DescribeConfigs"),
            _topics(kafka.topics),
        ),
        Grant(
            "Spark's readers join no group, but ask for the committed offsets of one", monitor, ["Describe"], prefixed
        ),
        Grant(
            "optional: session timeouts of KIP-848, share and streams groups",
            monitor,
            ["DescribeConfigs"],
            ["--cluster", "--group", "*"],
        ),
        Grant(
            "optional: lag, and names of topics that those groups know by id only",
            monitor,
            ["Describe"],
            _topics(["*"]),
        ),
        Grant(
            "the user of the brokers' log4j2 file, in the place of BROKER; not needed for a super user",
            "BROKER",
            ("Write", "Describe"),
            _topics(kafka.telemetry_topics),
        ),
        Grant(
            "the user of applications with the reporter, in the place of APP",
            "APP",
            ("Write", "Describe"),
            _topics(kafka.client_telemetry_topics),
        ),
    ]


def acl_lines(kafka: Kafka) -> list[str]:
    """Return the commands, each after a comment that says what it is for."""
    return [line for grant in grants(kafka) for line in (f"# {grant.why}", grant.command(kafka))]


def _topics(names: Sequence[str]) -> list[str]:
    return [option for name in names for option in ("--topic", name)]
