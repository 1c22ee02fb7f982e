"""`audit` of a topic that is too large for its time limit: `python -m tests.benchmarks audit --records 9000000`.

The topic is like `__consumer_offsets` of a busy cluster before compaction: 50 partitions of offset commits, with a
group's record now and then. It prints the time and memory of the whole command, and the share of the topic that it
read.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from streaming.embedded import EmbeddedCluster
from tests.support.records import commit_key, commit_value, key
from tests.support.story import Who, group_metadata

TOPIC = "large-offsets"
PARTITIONS = 50
GROUPS = 500
COMMITS = 2_000
"""Offset commits for each record of a group."""


def fill(servers: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    value = commit_value(42, 1_700_000_000_000)
    for number in range(records):
        group = number % GROUPS
        if number // GROUPS % COMMITS == 0:
            name = f"group-{group}"
            members = [Who(f"{name}-{n}", client_id=f"client-{n}") for n in range(5)]
            record = key(2, name), group_metadata(1 + number // GROUPS // COMMITS, members, members[0].member_id)
        else:
            record = commit_key(f"group-{group}", "orders", number % 12), value
        while True:
            try:
                producer.produce(TOPIC, record[1], key=record[0], partition=group % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()


def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, EmbeddedCluster(telemetry=False) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        fill(cluster.bootstrap_servers, options.records)
        size = sum(file.stat().st_size for file in cluster.nodes[0].data_folder.glob(f"{TOPIC}-*/*.log"))
        config = Path(folder) / "monitor.toml"
        config.write_text(f'[kafka]\nbootstrap_servers = "{cluster.bootstrap_servers}"\noffsets_topic = "{TOPIC}"\n')
        began_s = time.monotonic()
        command = [sys.executable, "-m", "streaming.cli", "audit", "--config", str(config), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        took_s = time.monotonic() - began_s
    told = json.loads(done.stdout)
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1_024
    print(f"{options.records:,} records, {size / 1e6:,.0f} MB on disk: {took_s:.1f} s, {peak_mb:,.0f} MB,", end=" ")
    print(f"{told['records']['share_read']:.0%} read; {told['notes']}")
