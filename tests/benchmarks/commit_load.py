"""Offset commits at a steady rate, beside the heartbeats of `load`: `python -m tests.benchmarks.commit_load`."""

import argparse
import time
from itertools import count

from confluent_kafka import Producer

from coordinator_model.shard.sharding import shard_of
from tests.benchmarks import synthetic

STEP_S = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True, help="of the commits")
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument("--groups", type=int, required=True)
    parser.add_argument("--partitions", type=int, required=True, help="that each group commits to, one after the other")
    parser.add_argument("--rate", type=int, required=True, help="commits a second")
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap_servers,
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "acks": 1,
        }
    )
    names = [f"bench-group-{number:05d}" for number in range(options.groups)]
    groups = [(synthetic.commit_head(name), shard_of(name, options.shards)) for name in names]
    numbers, sent, begin_s = count(), 0, time.time()
    while (now_s := time.time()) - begin_s < options.seconds:
        due = int((now_s - begin_s) * options.rate)
        for number in numbers:
            turn, group = divmod(number, options.groups)
            head, shard = groups[group]
            key, value = synthetic.commit_record(head, turn % options.partitions, turn, int(now_s * 1000))
            producer.produce(options.topic, value, key, shard, timestamp=int(now_s * 1000))
            sent += 1
            if sent >= due:
                break
        producer.poll(0)
        time.sleep(STEP_S)
    producer.flush()


if __name__ == "__main__":
    main()
