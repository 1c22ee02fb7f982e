"""Waiting for a topic of which the brokers hear one after the other."""

import time

import pytest
from kafka import TopicPartition
from kafka.errors import UnknownTopicOrPartitionError

from streaming.embedded import EmbeddedBrokerError, readiness
from streaming.telemetry_topics import TELEMETRY_TOPIC


class Consumer:
    """Asks a broker that knows the topic (True) or has not heard of it yet: one for each question, in this order."""

    def __init__(self, *knows: bool) -> None:
        self.left = list(knows)
        self.at_the_end: list[TopicPartition] = []

    def partitions_for_topic(self, _topic):
        return {0} if self.left.pop(0) else None

    def assign(self, partitions):
        self.assigned = partitions

    def seek_to_end(self, *partitions):
        assert set(partitions) <= set(self.assigned)

    def position(self, partition):
        if not self.left.pop(0):
            raise UnknownTopicOrPartitionError(TELEMETRY_TOPIC)
        self.at_the_end.append(partition)


@pytest.mark.parametrize("knows", [(True, True), (False, True, True), (True, False, True, True)])
def test_a_topic_of_which_the_next_broker_has_not_heard_is_asked_for_again(knows):
    consumer = Consumer(*knows)
    readiness._read_from_now_on(consumer, time.monotonic() + 60)
    assert (consumer.at_the_end, consumer.left) == ([TopicPartition(TELEMETRY_TOPIC, 0)], [])


def test_a_topic_of_which_a_broker_never_hears_is_an_error_in_time():
    with pytest.raises(EmbeddedBrokerError, match=f"no topic {TELEMETRY_TOPIC}"):
        readiness._read_from_now_on(Consumer(True, False), time.monotonic() - 1)
