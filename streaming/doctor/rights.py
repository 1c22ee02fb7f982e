"""The `kafka-acls` commands for the monitor's principal, and for what writes telemetry."""

import shlex

from streaming.kafka_config import READER_GROUP_PREFIX, Kafka


def principal_of(kafka: Kafka) -> str:
    """Guess the principal that brokers see: certain for SASL only, a certificate's name is mapped by the broker."""
    return f"User:{kafka.sasl_username or 'MONITOR'}"


def acl_commands(kafka: Kafka) -> list[str]:
    """Return the commands that let the monitor read and, with APP in place of a user, applications report.

    The monitor joins no group and writes nothing. Its probe (ListGroups) needs no right: who has none is told of no
    groups, and asks for none. Spark's readers have group ids of their own: they never join, but ask for committed
    offsets, which takes Describe.
    """
    base = ["kafka-acls", "--bootstrap-server", kafka.bootstrap_servers, "--add", "--allow-principal"]
    rights = ("Read", "Describe", "DescribeConfigs")  # the last for `doctor`, which looks at the topics' settings
    read = [*base, principal_of(kafka), *(option for right in rights for option in ("--operation", right))]
    topics = [option for topic in kafka.topics for option in ("--topic", topic)]
    # Optional: session timeouts of KIP-848, share and streams groups (`[thresholds] consumer_session_timeout_ms` tells
    # the first too), and the names of topics that those groups know by id only.
    settings = [*base, principal_of(kafka), "--operation", "DescribeConfigs", "--cluster", "--group", "*"]
    names = [*base, principal_of(kafka), "--operation", "Describe", "--topic", "*"]
    prefixed = ["--resource-pattern-type", "prefixed", "--group", READER_GROUP_PREFIX]
    reader = [*base, principal_of(kafka), "--operation", "Describe", *prefixed]
    reports = [topic for name in kafka.client_telemetry_topics for topic in ("--topic", name)]
    write = [*base, "User:APP", "--operation", "Write", "--operation", "Describe", *reports]
    return [shlex.join(command) for command in ([*read, *topics], reader, settings, names, write)]
