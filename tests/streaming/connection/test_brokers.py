"""Which brokers a cluster has, also where kafka-python cannot read the answer of an older one."""

from types import SimpleNamespace

from streaming.connection.brokers import describe_cluster

METADATA = {
    "cluster_id": "c",
    "controller_id": 1,
    "brokers": [{"node_id": 1, "host": "kafka-1", "port": 9092, "rack": None}],
}


class Admin:
    """As kafka-python 3.0.12 in front of Kafka 2.8 to 3.6, which answer DescribeCluster in version 0."""

    _manager = SimpleNamespace(run=lambda coroutine, *args: coroutine(*args))

    def describe_cluster(self):
        raise KeyError("endpoint_type")

    def _get_cluster_metadata(self, topics):
        assert topics == []
        return METADATA


def test_brokers_of_2_8_to_3_6_are_asked_for_metadata():
    described = describe_cluster(Admin())
    assert described["cluster_id"] == "c"
    assert [(broker["broker_id"], broker["host"], broker["port"]) for broker in described["brokers"]] == [
        (1, "kafka-1", 9092)
    ]


def test_newer_brokers_are_taken_at_their_word():
    assert describe_cluster(SimpleNamespace(describe_cluster=lambda: METADATA)) is METADATA
