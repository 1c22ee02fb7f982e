"""What kafka-python 3.0.12 tells of a cluster's brokers, and how to live with two of its faults.

Its own `describe_cluster` fails with Kafka 2.8 to 3.6: these answer DescribeCluster in version 0, which has no endpoint
type (KIP-919), and it expects one in each response and raises KeyError. And it never connects again to a broker that
has refused its login, although a broker that is starting may refuse a good one.
"""

from typing import Any

from kafka import KafkaAdminClient
from kafka.net.manager import KafkaConnectionManager


def describe_cluster(admin: KafkaAdminClient) -> dict[str, Any]:
    """Return what `KafkaAdminClient.describe_cluster` does: `cluster_id`, `brokers` with `broker_id`, host and port."""
    try:
        described: dict[str, Any] = admin.describe_cluster()
    except KeyError:
        metadata = admin._manager.run(admin._get_cluster_metadata, [])  # noqa: SLF001 # as it does with older brokers
        brokers = [{**broker, "broker_id": broker["node_id"]} for broker in metadata["brokers"]]
        described = {"cluster_id": metadata["cluster_id"], "brokers": brokers}
    return described


def refused_logins(manager: KafkaConnectionManager) -> dict[int, str]:
    """Return what brokers refused a client's login with, by node. Only a new client will ever log in to them again."""
    nodes = [broker.node_id for broker in manager.cluster.brokers()]
    return {node: repr(refusal) for node in nodes if (refusal := manager.auth_failure(node)) is not None}
