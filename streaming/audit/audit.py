"""An audit from its beginning to its report, within a time box."""

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
from streaming.audit.tiers import tier_of, tiers
from streaming.connection import Kind, diagnose
from streaming.kafka_config import Kafka
from streaming.tiers import RECORDS_ONLY

BOX_S: Final = 50.0
READ_SHARE: Final = 0.7
"""How much of the box may pass before reading ends; the rest is for judging what was read."""
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
    """Look at a cluster for `box_s` at most; raises `ConnectionProblem` or `KafkaError` where there is no way in."""
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
        notes.append("There was no time to judge all that was read: some groups are judged by their members only.")
    if read.unreadable:
        notes.append(f"{read.unreadable:,} records could not be read.")
    return Report(
        cluster=cluster or told.cluster_id,
        groups=assessed.groups,
        hosts=assessed.hosts,
        tiers=tiers(tier, records=bool(read.begins), reports=bool(filled), pushes=told.pushes),
        share=read.share if read.begins else 0.0,
        newest=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(read.newest_ms / 1000)) if read.newest_ms else "",
        notes=[*told.problems, *notes],
    )


def _records(
    kafka: Kafka, client: dict[str, object], told: Told, deadline_s: float, stop: threading.Event, shown: Shown
) -> tuple[Read, list[str]]:
    """Read the offsets topic; what keeps us from it is a note, for the brokers have told of the groups already."""
    topic = kafka.offsets_topic
    denied = f"{topic} may not be read, as on most managed services: this report has only what the brokers say of their"
    denied += " groups now. Nothing is told of the past or of timeouts."
    if (refused := diagnose(kafka, topics=[topic])) and refused.kind is Kind.AUTHORIZATION:
        return Read(), [denied]
    if topic not in told.topic_partitions:
        return Read(), [denied] if told.groups else [f"{topic} does not exist, or may not be seen: no group was used."]
    try:
        read = read_newest(
            client, topic, deadline_s, stop, lambda read: shown(f"{share_read(read.share)} of {topic} read")
        )
    except KafkaError as error:
        return Read(), [f"{topic} could not be read: {type(error).__name__}. The past is not told."]
    if read.read < read.wanted:
        left = "What is older is not told, and KIP-848 groups of which records were left unread are not judged"
        return read, [f"Only {share_read(read.share)} of {topic} was read, its newest records. {left}."]
    return read, []
