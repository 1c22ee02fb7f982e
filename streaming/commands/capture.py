"""`capture`: record both topics of a cluster into a file that `replay` reads.

Reads by `assign`, without a consumer group: joining one would write into the very topic that is recorded. The probe
runs beside it, so that a capture of a quiet cluster has ticks too.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OFFSETS_TOPIC = "__consumer_offsets"
TELEMETRY_TOPIC = "group-telemetry"
CLIENT_TELEMETRY_TOPIC = "group-client-telemetry"
POLL_MS = 200
NEW_TOPIC_LOOK_S = 1.0
PROGRESS_S = 5.0


def capture_line(source: str, record: Any) -> str:
    """One consumed record (kafka-python's `ConsumerRecord`) as a line of the capture format."""
    row: dict[str, Any] = {
        "source": source,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
    }
    if source == "offsets":
        row["key"], row["value"] = _base64(record.key), _base64(record.value)
    else:
        row["key"], row["value"] = _text(record.key), _text(record.value) or ""
    return json.dumps(row, separators=(",", ":"), ensure_ascii=True)


def record(
    client: Mapping[str, Any],
    topics: Mapping[str, str],
    out: IO[str],
    stop: threading.Event,
    *,
    from_beginning: bool = False,
) -> Iterator[Counter[str]]:
    """Write every record of `topics` (topic -> "offsets" | "telemetry") to `out` until `stop` is set.

    Yields the rows written so far per topic after each poll. A topic that does not exist yet is picked up, from its
    first record, when it appears; so is a partition added later.
    """
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        **client,
        group_id=None,
        enable_auto_commit=False,
        allow_auto_create_topics=False,
        metadata_max_age_ms=10_000,
        max_poll_records=20_000,
        fetch_max_wait_ms=POLL_MS,
    )
    written: Counter[str] = Counter()
    look_at = 0.0
    at_start = not from_beginning
    try:
        while not stop.is_set():
            if time.monotonic() >= look_at:
                with contextlib.suppress(KafkaError):  # a broker is away: look again in a second
                    _assign_new(consumer, list(topics), at_end=at_start)
                    at_start = False
                look_at = time.monotonic() + NEW_TOPIC_LOOK_S
            if not consumer.assignment():
                stop.wait(POLL_MS / 1000)
                yield written
                continue
            for partition, records in consumer.poll(timeout_ms=POLL_MS).items():
                out.writelines(capture_line(topics[partition.topic], row) + "\n" for row in records)
                written[partition.topic] += len(records)
            out.flush()
            yield written
    finally:
        consumer.close()


def _assign_new(consumer: Any, topics: list[str], *, at_end: bool) -> None:
    """Add partitions that appeared since the last look; keep the positions of the others."""
    from kafka import TopicPartition

    known = consumer.assignment()
    found = {TopicPartition(topic, number) for topic in topics for number in consumer.partitions_for_topic(topic) or ()}
    new = found - known
    if not new:
        return
    positions = {partition: consumer.position(partition) for partition in known}
    consumer.assign(sorted(found | known))
    for partition, position in positions.items():
        consumer.seek(partition, position)
    if at_end:
        consumer.seek_to_end(*new)
        for partition in new:
            consumer.position(partition)  # the end as of now, not as of the first poll
    else:
        consumer.seek_to_beginning(*new)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode("utf-8")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    if path.suffix == ".gz":
        with gzip.open(path, "wt", encoding="utf-8", compresslevel=5) as file:
            yield file
    else:
        with path.open("w", encoding="utf-8") as file:
            yield file


def _client_and_topics(config: Path | None, bootstrap_servers: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    if config is None:
        if not bootstrap_servers:
            raise click.UsageError("give --config or --bootstrap-servers")
        names = (OFFSETS_TOPIC, [TELEMETRY_TOPIC, CLIENT_TELEMETRY_TOPIC])
        client: dict[str, Any] = {"bootstrap_servers": bootstrap_servers.split(",")}
    else:
        from streaming.config import load

        kafka = load(config).kafka
        client = dict(kafka.python_client())
        if bootstrap_servers:
            client["bootstrap_servers"] = bootstrap_servers.split(",")
        names = (kafka.offsets_topic, [*kafka.telemetry_topics, *kafka.client_telemetry_topics])
    offsets_topic, telemetry_topics = names
    return client, {offsets_topic: "offsets"} | dict.fromkeys(telemetry_topics, "telemetry")


@click.command("capture")
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="monitor.toml")
@click.option("--bootstrap-servers", help="host:port[,host:port]; instead of --config, without security.")
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help=".jsonl or .jsonl.gz")
@click.option("--seconds", type=float, help="Stop after this long; otherwise Ctrl-C or SIGTERM ends it.")
@click.option("--from-beginning", is_flag=True, help="Everything the topics still hold, not only what comes from now.")
@click.option("--no-probe", is_flag=True, help="Do not ask the brokers anything; a quiet broker then has no ticks.")
def capture_command(
    config: Path | None,
    bootstrap_servers: str | None,
    out: Path,
    seconds: float | None,
    from_beginning: bool,
    no_probe: bool,
) -> None:
    """Record group records and telemetry into a capture that `replay` reads."""
    from kafka.errors import KafkaError

    from streaming.run.probe import Probe

    client, topics = _client_and_topics(config, bootstrap_servers)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    started = shown = time.monotonic()
    written: Counter[str] = Counter()
    try:
        with _opened(out) as file, contextlib.nullcontext() if no_probe else Probe(client):
            for written in record(client, topics, file, stop, from_beginning=from_beginning):
                now = time.monotonic()
                if seconds is not None and now - started >= seconds:
                    stop.set()
                if now - shown >= PROGRESS_S:
                    shown = now
                    click.echo(_progress(written, topics, now - started), err=True)
    except (KafkaError, OSError) as error:
        click.echo(f"capture: {error}", err=True)
        sys.exit(1)
    click.echo(f"{out}: {_progress(written, topics, time.monotonic() - started)}", err=True)


def _progress(written: Counter[str], topics: Mapping[str, str], elapsed_s: float) -> str:
    counts = ", ".join(f"{topic} {written[topic]:,}" for topic in topics)
    return f"{elapsed_s:.0f} s: {counts}"
