"""What each kind of telemetry costs a broker: `python -m tests.benchmarks telemetry-cost`.

There is a broker for each kind, and all run throughout. Each gets a block of requests with its telemetry off and one
with it on, in turn, so that both come from the same process and the same minute; there are `PAIRS` rounds over all
brokers. A request is sent when the one before it was answered, on one connection. CPU time is the broker
process's own, from /proc: with the appender it includes the producer inside it, and the writing of what that produces.
Results are medians of the blocks; ratios and differences are medians of the pairs. The first kind changes nothing: what
it shows is noise.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from streaming.embedded import TELEMETRY_TOPIC, EmbeddedCluster
from streaming.embedded.cluster import REQUEST_LOGGER
from streaming.embedded.ports import free_ports
from streaming.log4j2 import REGEX, Snippet, as_yaml
from tests.benchmarks.broker_wire import TOPIC, WIDE, WIDE_TOPIC, Wire
from tests.benchmarks.processes import usage_of
from tests.streaming.embedded import shipper as rsyslog

PAIRS = 12
WARM_UP_PAIRS = 3
REQUESTS = 5_000
PATIENT = {"broker.session.timeout.ms": "120000"}
"""Several brokers share a busy machine: none should be fenced by its own controller."""
COORDINATOR_LOGGER = "org.apache.kafka.coordinator"
KINDS: Mapping[str, tuple[Callable[[Wire], None], int]] = {
    "produce": (Wire.produce, REQUESTS),
    "fetch": (Wire.fetch, REQUESTS),
    "fetch of 100 partitions": (Wire.fetch_wide, REQUESTS // 5),
    "heartbeat": (Wire.heartbeat, REQUESTS),
}
"""Requests, and how many of them make a block."""


class Block(NamedTuple):
    """The cost of one API's requests in one block; `answers_ms` is sorted."""

    cpu_us: float
    answers_ms: list[float]

    @property
    def p50_ms(self) -> float:
        """The median answer time."""
        return self.answers_ms[len(self.answers_ms) // 2]

    @property
    def p99_ms(self) -> float:
        """The answer time that one in a hundred exceeds."""
        return self.answers_ms[len(self.answers_ms) * 99 // 100]


class Variant(NamedTuple):
    """One kind of telemetry: the broker's log4j2 file, and the logger that switches it."""

    name: str
    logger: str
    on: str
    text: str
    file: Path | None = None


class Broker:
    """A broker with one kind of telemetry, under load."""

    def __init__(self, variant: Variant, cluster: EmbeddedCluster, shipper: subprocess.Popen[bytes] | None) -> None:
        self.variant = variant
        self._cluster = cluster
        self._shipper = shipper
        self._wire = Wire(cluster.nodes[0].port)
        self._admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        self.blocks: dict[tuple[str, bool], list[Block]] = {(kind, on): [] for kind in KINDS for on in (False, True)}
        self.lines = self.line_bytes = 0
        self.seconds = self.shipper_s = 0.0

    def pair(self, on_first: bool, *, counted: bool) -> None:
        """Load it once with its telemetry off and once with it on."""
        for on in (on_first, not on_first):
            self._switch(on=on)
            before = self._written()
            blocks = {kind: self._block(kind) for kind in KINDS}
            if not counted:
                continue
            for kind, block in blocks.items():
                self.blocks[kind, on].append(block)
            if on:
                self._count(before)

    def newest_bytes(self) -> int:
        """Return the size of the newest line, before compression."""
        consumer = KafkaConsumer(bootstrap_servers=self._cluster.bootstrap_servers)
        with contextlib.closing(consumer):
            partitions = [TopicPartition(TELEMETRY_TOPIC, number) for number in range(3)]
            last = max(consumer.end_offsets(partitions).items(), key=lambda end: end[1])
            consumer.assign([last[0]])
            consumer.seek(last[0], last[1] - 1)
            return len(next(consumer).value)

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()
        self._admin.close()

    def _switch(self, *, on: bool) -> None:
        node_id = str(self._cluster.nodes[0].node_id)
        level = {self.variant.logger: self.variant.on if on else "WARN"}
        self._admin.alter_configs([ConfigResource(ConfigResourceType.BROKER_LOGGER, node_id, level)])

    def _block(self, kind: str) -> Block:
        (send, requests), pid = KINDS[kind], self._cluster.nodes[0].pid
        answers_ms, cpu_s = [], usage_of(pid)["driver"].cpu_s
        for _ in range(requests):
            begun = time.perf_counter()
            send(self._wire)
            answers_ms.append((time.perf_counter() - begun) * 1_000)
        time.sleep(0.1)  # what the appender still holds (linger.ms 20) is part of the cost
        cpu_us = (usage_of(pid)["driver"].cpu_s - cpu_s) * 1e6 / requests
        return Block(cpu_us, sorted(answers_ms))

    def _written(self) -> tuple[float, int, int, float]:
        """Return the time, lines and bytes of the telemetry topic, and the shipper's CPU time."""
        lines, size = written(self._cluster)
        shipper_s = usage_of(self._shipper.pid)["driver"].cpu_s if self._shipper else 0.0
        return time.perf_counter(), lines, size, shipper_s

    def _count(self, before: tuple[float, int, int, float]) -> None:
        at_s, lines, size, shipper_s = (now - then for now, then in zip(self._written(), before, strict=True))
        self.seconds, self.lines = self.seconds + at_s, self.lines + int(lines)
        self.line_bytes, self.shipper_s = self.line_bytes + int(size), self.shipper_s + shipper_s


def written(cluster: EmbeddedCluster) -> tuple[int, int]:
    """Return how many lines the telemetry topic has, and how many bytes on the broker's disk."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
    with contextlib.closing(consumer):
        partitions = [TopicPartition(TELEMETRY_TOPIC, number) for number in range(3)]
        lines = sum(consumer.end_offsets(partitions).values())
    folders = cluster.nodes[0].data_folder.glob(f"{TELEMETRY_TOPIC}-*/*.log")
    return lines, sum(file.stat().st_size for file in folders)


def variants(folder: Path, ports: list[int]) -> Iterator[Variant]:
    """Yield all kinds, each for the broker at its port."""
    own = [Snippet(bootstrap_servers=f"127.0.0.1:{port}", key="broker-1", alone=True, level="warn") for port in ports]
    yield Variant("nothing (noise)", REQUEST_LOGGER, "WARN", as_yaml(own[0]))
    yield Variant("tier 1: INFO lines of the coordinator", COORDINATOR_LOGGER, "INFO", tier_1(own[1]))
    yield Variant("request log, with the appender", REQUEST_LOGGER, "DEBUG", as_yaml(own[2]))
    file = folder / "group-telemetry.log"
    yield Variant("request log, into a file", REQUEST_LOGGER, "DEBUG", as_yaml(own[3]._replace(file=f"{file}.unread")))
    denied = as_yaml(own[4]).replace("Configuration:\n", "Configuration:\n  ThresholdFilter: {level: info}\n")
    yield Variant("request log, denied by a filter of the whole context", REQUEST_LOGGER, "DEBUG", denied)
    if rsyslog.program() is not None:
        text = as_yaml(own[5]._replace(file=str(file)))
        yield Variant("request log, into a file, with rsyslog", REQUEST_LOGGER, "DEBUG", text, file)


def tier_1(snippet: Snippet) -> str:
    """Return the log4j2 file that ships what the coordinator logs at INFO, and no request."""
    logger = f"    Logger:\n      - name: {COORDINATOR_LOGGER}\n        level: warn\n        additivity: false\n"
    logger += "        AppenderRef: [{ref: GroupTelemetry}]\n"
    return as_yaml(snippet).replace(REGEX, "(?s).*").replace("    Logger:\n", logger)


@contextlib.contextmanager
def running(variant: Variant, port: int, folder: Path) -> Iterator[Broker]:
    """Start the broker of a kind, and its shipper if it has one."""
    files: Mapping[str, str] = {"log4j2.yaml": variant.text}
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(EmbeddedCluster(telemetry=False, port=port, log4j2=files, properties=PATIENT))
        cluster.create_topic(TOPIC, partitions=1)
        cluster.create_topic(WIDE_TOPIC, partitions=WIDE)
        shipper = None
        if variant.file is not None:
            shipper = stack.enter_context(
                rsyslog.shipping(rsyslog.program(), folder, cluster.bootstrap_servers, variant.file)
            )
        broker = Broker(variant, cluster, shipper)
        stack.callback(broker.close)
        yield broker


def main(options: argparse.Namespace) -> None:
    pairs = options.pairs or PAIRS
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="group-monitor-bench-")))
        ports = free_ports(6)
        chosen = list(zip(variants(folder, ports), ports, strict=False))
        brokers = [stack.enter_context(running(variant, port, folder)) for variant, port in chosen]
        for number in range(-WARM_UP_PAIRS, pairs):
            for broker in brokers:
                broker.pair(on_first=bool(number % 2), counted=number >= 0)
            print(f"pair {number + 1} of {pairs}", file=sys.stderr)
        for broker in brokers:
            report(broker)
        for broker in brokers:
            report_lines(broker)
    if rsyslog.program() is None:
        print("rsyslogd with omkafka is not installed (Debian: rsyslog-kafka): no log shipper was measured")


def report(broker: Broker) -> None:
    """Print a row for each API."""
    for kind in KINDS:
        off, on = broker.blocks[kind, False], broker.blocks[kind, True]
        paired = list(zip(off, on, strict=True))
        ratio = statistics.median(b.cpu_us / a.cpu_us for a, b in paired)
        extra_us = statistics.median(b.cpu_us - a.cpu_us for a, b in paired)
        cells = [broker.variant.name, kind, f"{middle(off, 'cpu_us'):.0f} µs", f"{middle(on, 'cpu_us'):.0f} µs"]
        cells += [f"{ratio:.2f}", f"{extra_us:+.0f} µs"]
        cells += [f"{middle(off, name):.2f} → {middle(on, name):.2f} ms" for name in ("p50_ms", "p99_ms")]
        print(f"| {' | '.join(cells)} |", flush=True)


def report_lines(broker: Broker) -> None:
    """Print what was written to the topic while the telemetry was on."""
    each = f"{broker.line_bytes / broker.lines:.0f} of {broker.newest_bytes()}" if broker.lines else "-"
    asked = sum(requests for _, requests in KINDS.values()) * len(broker.blocks["fetch", True])
    cells = [f"{broker.lines / broker.seconds:,.0f}", f"{broker.line_bytes / broker.seconds / 1_000:,.0f} kB", each]
    cells += [f"{asked / broker.seconds:,.0f}", f"{broker.shipper_s / asked * 1e6:.0f} µs" if broker.shipper_s else "-"]
    print(f"| {broker.variant.name} | {' | '.join(cells)} |", flush=True)


def middle(blocks: list[Block], name: str) -> Any:
    """Return the median of one number of the blocks."""
    return statistics.median(getattr(block, name) for block in blocks)
