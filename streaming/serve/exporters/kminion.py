"""kminion's metrics of groups (also those of its offsets-topic mode), and of the partitions that groups commit to."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from coordinator_model.lag.topic_sums import topics_of
from streaming.serve.exporters.reading import Partitions, Reading
from streaming.serve.exporters.text import Exposition, Family, labelled
from streaming.store.lags import Lag, topic_lags

_UP: Final = "kminion_exporter_up"
_RECORDS: Final = "kminion_exporter_offset_consumer_records_consumed_total"
_INFO: Final = "kminion_kafka_consumer_group_info"
_MEMBERS: Final = "kminion_kafka_consumer_group_members"
_EMPTY_MEMBERS: Final = "kminion_kafka_consumer_group_empty_members"
_TOPIC_MEMBERS: Final = "kminion_kafka_consumer_group_topic_members"
_ASSIGNED: Final = "kminion_kafka_consumer_group_topic_assigned_partitions"
_OFFSET_SUM: Final = "kminion_kafka_consumer_group_topic_offset_sum"
_PARTITION_LAG: Final = "kminion_kafka_consumer_group_topic_partition_lag"
_TOPIC_LAG: Final = "kminion_kafka_consumer_group_topic_lag"
_COMMITS: Final = "kminion_kafka_consumer_group_offset_commits_total"
_LOW: Final = "kminion_kafka_topic_partition_low_water_mark"
_HIGH: Final = "kminion_kafka_topic_partition_high_water_mark"
_LOW_SUM: Final = "kminion_kafka_topic_low_water_mark_sum"
_HIGH_SUM: Final = "kminion_kafka_topic_high_water_mark_sum"
_GROUP: Final = ("group_id",)
_TOPIC: Final = ("group_id", "topic_name")
_OFFSETS: Final = ("topic_name", "partition_id")
_CONSUMER: Final = "consumer"

FAMILIES: Final[Mapping[str, Family]] = {
    _UP: Family(("version",), "1; a monitor that has not caught up is not served."),
    _RECORDS: Family((), "Records of the offsets topic that were read.", "counter"),
    _INFO: Family(("group_id", "protocol", "protocol_type", "state", "coordinator_id"), "1 if the group is Stable."),
    _MEMBERS: Family(_GROUP, "Members of a group."),
    _EMPTY_MEMBERS: Family(_GROUP, "Members of a group without a partition, if there are any."),
    _TOPIC_MEMBERS: Family(_TOPIC, "Members of a group that have partitions of a topic."),
    _ASSIGNED: Family(_TOPIC, "Partitions of a topic that members of a group have."),
    _OFFSET_SUM: Family(_TOPIC, "Sum of a group's committed offsets of a topic."),
    _PARTITION_LAG: Family((*_TOPIC, "partition_id"), "Messages that a group is behind in a partition."),
    _TOPIC_LAG: Family(_TOPIC, "Messages that a group is behind in a topic."),
    _COMMITS: Family(_GROUP, "Offset commits of a group.", "counter"),
    _LOW: Family(_OFFSETS, "Start offset of a partition that a group commits to."),
    _HIGH: Family(_OFFSETS, "End offset of a partition that a group commits to."),
    _LOW_SUM: Family(("topic_name",), "Sum of the start offsets of a topic's partitions that groups commit to."),
    _HIGH_SUM: Family(("topic_name",), "Sum of the end offsets of a topic's partitions that groups commit to."),
}


def exposition(reading: Reading) -> Exposition:
    """Collect all samples."""
    lags, partitions = reading.lags(), Partitions()
    made = Exposition(FAMILIES, lags.left_out)
    made.add(_UP, labelled(("version",), f"group-monitor {version('kafka-group-monitor')}"), 1)
    made.add(_RECORDS, "", reading.records())
    for group in reading.groups():
        _add_group(made, group)
    for lag in lags:
        _add_lag(made, lag)
        partitions.learn(lag)
    for _, topic, partition, offsets in partitions:
        labels = labelled(_OFFSETS, topic, partition)
        made.add_known(_LOW, labels, offsets.start)
        made.add_known(_HIGH, labels, offsets.end)
    for topic, low, high in partitions.sums():
        made.add_known(_LOW_SUM, labelled(("topic_name",), topic), low)
        made.add_known(_HIGH_SUM, labelled(("topic_name",), topic), high)
    return made


def _add_group(made: Exposition, group: Mapping[str, Any]) -> None:
    name, members = group["group"], group["members"]
    facts = (group["protocol"] or "", group["protocol_type"] or "", group["state"], group.get("coordinator") or "")
    made.add(_INFO, labelled(FAMILIES[_INFO].labels, name, *facts), int(group["state"] == "Stable"))
    made.add(_MEMBERS, labelled(_GROUP, name), group.get("members_total", len(members)))
    if group["protocol_type"] != _CONSUMER:
        return  # kminion does not decode the assignments of Connect and other protocols
    if idle := sum(not member["assignment"] for member in members):
        made.add(_EMPTY_MEMBERS, labelled(_GROUP, name), idle)
    owned: dict[str, list[int]] = {}
    for member in members:
        for assigned in member["assignment"]:
            owned.setdefault(assigned["topic"], []).append(len(assigned["partitions"]))
    for topic, counts in owned.items():
        labels = labelled(_TOPIC, name, topic)
        made.add(_TOPIC_MEMBERS, labels, len(counts))
        made.add(_ASSIGNED, labels, sum(counts))


def _add_lag(made: Exposition, lag: Lag) -> None:
    made.add_known(_COMMITS, labelled(_GROUP, lag.group), lag.columns.get("commits"))
    for topic in topic_lags(lag.columns):
        labels = labelled(_TOPIC, lag.group, topic.topic)
        made.add_known(_TOPIC_LAG, labels, topic.lag)
        made.add_known(_OFFSET_SUM, labels, topic.committed)
    lags, numbers = lag.columns["lag"], lag.columns["partition"]
    for name, _, first, end in topics_of(lag.columns):
        of_topic = labelled(_TOPIC, lag.group, name)
        for row in range(first, end):
            made.add_known(_PARTITION_LAG, f'{of_topic},partition_id="{numbers[row]}"', lags[row])
