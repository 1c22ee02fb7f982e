"""The brokers of a cluster of any release. kafka-python's own `describe_cluster` fails with Kafka 2.8 to 3.6.

These answer DescribeCluster in version 0, which has no endpoint type (KIP-919). kafka-python 3.0.12 expects one in each
response and raises KeyError.
"""

from typing import Any

from kafka import KafkaAdminClient


def describe_cluster(admin: KafkaAdminClient) -> dict[str, Any]:
    """Return what `KafkaAdminClient.describe_cluster` does: `cluster_id`, `brokers` with `broker_id`, host and port."""
    try:
        described: dict[str, Any] = admin.describe_cluster()
    except KeyError:
        metadata = admin._manager.run(admin._get_cluster_metadata, [])  # noqa: SLF001 # as it does with older brokers
        brokers = [{**broker, "broker_id": broker["node_id"]} for broker in metadata["brokers"]]
        described = {"cluster_id": metadata["cluster_id"], "brokers": brokers}
    return described
