"""Writing and reading of a topic, no more than these tests need."""

import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.waiting import PATIENCE_S, await_true


def produce(bootstrap_servers, topic, *values):
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, acks="all")
    for future in [producer.send(topic, value) for value in values]:
        future.get(timeout=30)
    producer.close()


def read_until(bootstrap_servers, topic, enough, *, timeout_s=PATIENCE_S):
    """Return all records of the topic, read from the start until `enough(records)`; on a timeout, show them."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
    try:
        await_true(lambda: consumer.partitions_for_topic(topic))  # a broker can be behind the one that made the topic
        consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)])
        records, deadline = [], time.monotonic() + timeout_s
        while not enough(records):
            assert time.monotonic() < deadline, f"{topic} has only {[(r.key, r.value) for r in records]}"
            for batch in consumer.poll(timeout_ms=200).values():
                records += batch
        return records
    finally:
        consumer.close()
