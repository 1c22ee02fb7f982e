"""An audit from the connection to the report, within a time limit."""

import threading
import time
from collections.abc import Callable
from typing import Final

from kafka.errors import KafkaError

from coordinator_model.thresholds import DEFAULT_THRESHOLDS, Thresholds
from streaming.audit.ask import Told, ask
from streaming.audit.assess import assess
from streaming.audit.read import Read, read_newest, with_records
from streaming.audit.report import Report, share_read
from streaming.audit.tiers import sources, tier_of
from streaming.config.kafka import Kafka
from streaming.connection import Kind, diagnose
from streaming.tiers import RECORDS_ONLY

BOX_S: Final = 50.0
READ_SHARE: Final = 0.7
"""The share of the time after which reading ends; the rest is for judging what was read."""
CLIENT_ID: Final = "group-monitor-audit"
Shown = Callable[[str], None]


def audit(
    kafka: Kafka,
    *,
    cluster: str | None = None,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    box_s: float = BOX_S,
    stop: threading.Event | None = None,
    shown: Shown = lambda _: None,
) -> Report:
    """Audit a cluster for `box_s` at most; raise `ConnectionProblem` or `KafkaError` if it cannot be reached."""
    started_s = time.monotonic()
    shown("connecting")
    if problem := diagnose(kafka):
        raise problem
    client = {**kafka.python_client(), "client_id": CLIENT_ID}
    shown("asking for groups and topics")
    told = ask(client, started_s + box_s * READ_SHARE / 2)
    read, notes = _records(kafka, client, told, started_s + box_s * READ_SHARE, stop or threading.Event(), shown)
    lines = [topic for topic in kafka.telemetry_topics if topic in told.topic_partitions]
    tier = tier_of(client, lines, started_s + box_s) if lines else RECORDS_ONLY
    reports = [topic for topic in kafka.client_telemetry_topics if topic in told.topic_partitions]
    filled = with_records(client, reports) if reports else set()
    shown(f"judging {len(told.groups):,} groups")
    assessed = assess(read, told, started_s + box_s, thresholds)
    if assessed.out_of_time:
        notes.append("There was no time to judge all records: some groups are judged by their current members only.")
    if read.unreadable:
        notes.append(f"{read.unreadable:,} records could not be read.")
    return Report(
        cluster=cluster or told.cluster_id,
        groups=assessed.groups,
        hosts=assessed.hosts,
        sources=sources(tier, records=bool(read.begins), reports=bool(filled), pushes=told.pushes),
        share=read.share if read.begins else 0.0,
        newest=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(read.newest_ms / 1000)) if read.newest_ms else "",
        notes=[*told.problems, *notes],
    )


def _records(
    kafka: Kafka, client: dict[str, object], told: Told, deadline_s: float, stop: threading.Event, shown: Shown
) -> tuple[Read, list[str]]:
    """Read the offsets topic. If that is not possible, return a note: the brokers have already reported the groups."""
    topic = kafka.offsets_topic
    denied = f"{topic} may not be read, as on most managed services: this report has only what the brokers report now"
    denied += " about their groups. It says nothing about the past or about timeouts."
    if (refused := diagnose(kafka, topics=[topic])) and refused.kind is Kind.AUTHORIZATION:
        return Read(), [denied]
    if topic not in told.topic_partitions:
        return Read(), [denied] if told.groups else [f"{topic} does not exist or is not visible: no group was used."]
    try:
        read = read_newest(
            client, topic, deadline_s, stop, lambda read: shown(f"{share_read(read.share)} of {topic} read")
        )
    except KafkaError as error:
        return Read(), [f"{topic} could not be read: {type(error).__name__}. Nothing is known about the past."]
    if read.read < read.wanted:
        left = "Nothing older is reported, and KIP-848 groups with unread records are not judged"
        return read, [f"Only {share_read(read.share)} of {topic} was read, its newest records. {left}."]
    return read, []
