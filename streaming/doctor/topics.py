"""The telemetry topics: their settings, their cost, and their creation.

Settings are read from the cluster, because brokers have defaults of their own. The cost is measured: the lines of the
last hour, and the bytes on the brokers' disks.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, TopicAlreadyExistsError, TopicAuthorizationFailedError

from streaming.config.kafka import Kafka
from streaming.connection.brokers import describe_cluster
from streaming.doctor.check import ACL_ADVICE, Check, fail, ok, warn
from streaming.telemetry_topics import LINE_BYTES, creation_command, replication_for, wanted_configs

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
DAY_S: Final = 86_400
Configs = Mapping[str, str]
Topic = Mapping[str, Any]
"""A topic from `describe_topics`: `name`, `partitions` with `partition_index` and `replica_nodes`."""


def check_settings(kafka: Kafka, topic: Topic, found: Configs | None, brokers: int) -> Check:
    """Compare a topic's settings with what they should be."""
    name, label = topic["name"], "topic settings"
    if found is None:
        return warn(label, f"{name}: its settings may not be read", ACL_ADVICE)
    replicas = replicas_of(topic)
    wrong = {k: v for k, v in wanted_configs(kafka, name, replicas).items() if not _fits(k, v, found)}
    problems = [f"{key} is {found.get(key)}" for key in wrong]
    advice = []
    if wrong:
        changes = ",".join(f"{key}={value}" for key, value in wrong.items())
        command = f"kafka-configs --bootstrap-server {kafka.bootstrap_servers} --alter --entity-type topics"
        advice.append(f"{command} --entity-name {name} --add-config {changes}")
    wanted_replicas = replication_for(brokers).replication_factor
    if replicas < wanted_replicas:
        problems.append(f"replication factor {replicas} with {brokers} brokers: without one of them, lines are lost")
        advice.append(f"raise it to {wanted_replicas} with kafka-reassign-partitions, or create the topic again")
    if problems:
        return warn(label, f"{name}: {'; '.join(problems)}", "; ".join(advice))
    kept = _kept(_number(found, "retention.ms"))
    in_sync = _number(found, "min.insync.replicas") or "unknown"
    return ok(label, f"{name}: kept {kept}, replication factor {replicas}, min ISR {in_sync}")


def check_disk(admin: KafkaAdminClient, consumer: KafkaConsumer, topic: Topic, found: Configs | None) -> Check:
    """Show what a topic costs: bytes a day at the rate of the last hour, and the total for its retention time."""
    name, label = topic["name"], "telemetry disk"
    volume = measure(admin, consumer, topic)
    if volume is None:
        return ok(label, f"{name}: no line in the last hour")
    day_bytes = volume.records_per_s * DAY_S * volume.record_bytes * replicas_of(topic)
    retention_ms = _number(found or {}, "retention.ms") or DAY_MS
    in_all = "more every day" if retention_ms < 0 else f"{_size(day_bytes * retention_ms / DAY_MS)} in all"
    rate = f"{volume.records_per_s:,.1f} lines a second (measured over {_time(volume.measured_s * 1000)})"
    per_line = f"{volume.record_bytes:.0f} bytes a line{'' if volume.on_disk else ' before compression'}"
    cost = f"{_size(day_bytes)} a day on all brokers, kept {_kept(retention_ms)}: {in_all}"
    return ok(label, f"{name}: {rate}, {per_line}, replication factor {replicas_of(topic)}: {cost}")


class Volume(NamedTuple):
    """How many records arrive, and their size. `on_disk`: the bytes are those on the disks, after compression."""

    records_per_s: float
    record_bytes: float
    on_disk: bool
    measured_s: float


def measure(admin: KafkaAdminClient, consumer: KafkaConsumer, topic: Topic) -> Volume | None:
    """Measure the records of the last hour, or since the first one if that is later; None if there are none."""
    partitions = [TopicPartition(topic["name"], part["partition_index"]) for part in topic["partitions"]]
    now_ms = time.time_ns() // 1_000_000
    ends = consumer.end_offsets(partitions)
    since = consumer.offsets_for_times(dict.fromkeys(partitions, now_ms - HOUR_MS))
    begun = {partition: found for partition, found in since.items() if found is not None}
    records = sum(ends[partition] - found.offset for partition, found in begun.items())
    if records <= 0:
        return None
    measured_s = max(1.0, (now_ms - min(found.timestamp for found in begun.values())) / 1000)
    begins = consumer.beginning_offsets(partitions)
    stored = sum(ends[partition] - begins[partition] for partition in partitions)
    disk_bytes = _disk_bytes(admin, topic["name"])
    if not disk_bytes or not stored:
        return Volume(records / measured_s, LINE_BYTES, on_disk=False, measured_s=measured_s)
    record_bytes = disk_bytes / (stored * replicas_of(topic))
    return Volume(records / measured_s, record_bytes, on_disk=True, measured_s=measured_s)


def _disk_bytes(admin: KafkaAdminClient, name: str) -> int:
    """Return the bytes of all replicas on disk; 0 if we may not ask (it needs Describe on the cluster)."""
    try:
        brokers = admin.describe_log_dirs([name])
    except KafkaError:
        return 0
    folders = (folder for broker in brokers for folder in broker["log_dirs"])
    parts = (part for folder in folders for topic in folder["topics"] for part in topic["partitions"])
    return sum(part["partition_size"] for part in parts)


def configs_of(admin: KafkaAdminClient, topic: str) -> Configs | None:
    """Return a topic's settings, including defaults; None if they may not be read (kafka-python returns none then)."""
    try:
        found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic, None)], config_filter="all")
    except KafkaError:
        return None
    (settings,) = (resources[topic] for resources in found.values())
    return {key: entry["value"] for key, entry in settings.items()} or None


def replicas_of(topic: Topic) -> int:
    """Return a topic's replication factor: that of its partition with the fewest replicas."""
    return min(len(part["replica_nodes"]) for part in topic["partitions"])


def create_missing(kafka: Kafka, admin: KafkaAdminClient) -> Iterator[Check]:
    """Create the telemetry topics that do not exist, with the right settings; others are left as they are."""
    brokers = len(describe_cluster(admin)["brokers"])
    topics = (*kafka.telemetry_topics, *kafka.client_telemetry_topics)
    existing = {topic["name"] for topic in admin.describe_topics(list(topics)) if topic["error_code"] == 0}
    for topic in topics:
        yield _exists(topic) if topic in existing else _create(kafka, admin, topic, brokers)


def _create(kafka: Kafka, admin: KafkaAdminClient, topic: str, brokers: int) -> Check:
    spread = replication_for(brokers)
    configs = wanted_configs(kafka, topic, spread.replication_factor)
    specification = {"num_partitions": spread.partitions, "replication_factor": spread.replication_factor}
    try:
        admin.create_topics({topic: {**specification, "configs": configs}})
    except TopicAlreadyExistsError:
        return _exists(topic)
    except KafkaError as error:
        advice = f"ask somebody who has the right to run: {creation_command(kafka, topic, brokers)}"
        return fail("topic", f"{topic} cannot be created: {_why(kafka, error)}", advice)
    shown = ", ".join(f"{key}={value}" for key, value in configs.items())
    made = f"{spread.partitions} partitions, replication factor {spread.replication_factor}, {shown}"
    return ok("topic", f"{topic} created: {made}")


def _why(kafka: Kafka, error: KafkaError) -> str:
    if isinstance(error, TopicAuthorizationFailedError):
        return f'user "{kafka.sasl_username or "of this connection"}" may not create topics'
    return f"{type(error).__name__}: {error}"[:300]


def _exists(topic: str) -> Check:
    return ok("topic", f"{topic} exists and is left as it is; `doctor` says what its settings are")


def _fits(key: str, wanted: str, configs: Configs) -> bool:
    """Tell whether a setting will do: a topic may keep less, accept larger lines, or need fewer in-sync replicas.

    One that the broker does not tell is not judged.
    """
    if (found := configs.get(key)) is None:
        return True
    number = _number(configs, key) or 0
    if key == "retention.ms":
        return 0 < number <= 2 * int(wanted) or (_number(configs, "retention.bytes") or -1) > 0
    if key == "max.message.bytes":
        return number >= int(wanted)
    if key == "min.insync.replicas":
        return number <= int(wanted)
    return found == wanted


def _number(configs: Configs, key: str) -> int | None:
    """Return a number among a topic's settings; None if the broker does not tell it, as some that are not Kafka."""
    try:
        return int(configs[key])
    except (KeyError, TypeError, ValueError):
        return None


def _kept(retention_ms: int | None) -> str:
    if retention_ms is None:
        return "for an unknown time"
    return "for ever" if retention_ms < 0 else _time(retention_ms)


def _time(duration_ms: float) -> str:
    """Write a duration in the largest unit of which there are at least two, or in seconds."""
    for unit, unit_ms in (("days", DAY_MS), ("h", HOUR_MS), ("min", 60_000)):
        if duration_ms >= 2 * unit_ms:
            return f"{duration_ms / unit_ms:,.3g} {unit}"
    return f"{duration_ms / 1000:,.3g} s"


def _size(amount: float) -> str:
    """Write bytes in the largest unit in which the number is at least one."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:,.3g} {unit}"
        amount /= 1000
    return f"{amount:,.3g} TB"
