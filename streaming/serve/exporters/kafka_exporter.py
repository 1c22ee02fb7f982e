"""kafka_exporter's metrics of groups, and of the offsets of partitions that groups commit to."""

from collections.abc import Mapping
from typing import Final

from coordinator_model.lag.topic_sums import topics_of
from streaming.serve.exporters.reading import Partitions, Reading
from streaming.serve.exporters.text import Exposition, Family, labelled
from streaming.store.lags import Lag, topic_lags

_OFFSET: Final = "kafka_consumergroup_current_offset"
_OFFSET_SUM: Final = "kafka_consumergroup_current_offset_sum"
_LAG: Final = "kafka_consumergroup_lag"
_LAG_SUM: Final = "kafka_consumergroup_lag_sum"
_MEMBERS: Final = "kafka_consumergroup_members"
_END: Final = "kafka_topic_partition_current_offset"
_START: Final = "kafka_topic_partition_oldest_offset"
_TOPIC: Final = ("consumergroup", "topic")
_OFFSETS: Final = ("topic", "partition")

FAMILIES: Final[Mapping[str, Family]] = {
    _OFFSET: Family((*_TOPIC, "partition"), "Committed offset of a group in a partition."),
    _OFFSET_SUM: Family(_TOPIC, "Sum of a group's committed offsets of a topic."),
    _LAG: Family((*_TOPIC, "partition"), "Messages that a group is behind in a partition."),
    _LAG_SUM: Family(_TOPIC, "Messages that a group is behind in a topic."),
    _MEMBERS: Family(("consumergroup",), "Members of a group."),
    _END: Family(_OFFSETS, "End offset of a partition that a group commits to."),
    _START: Family(_OFFSETS, "Start offset of a partition that a group commits to."),
}


def exposition(reading: Reading) -> Exposition:
    """Collect all samples."""
    lags, partitions = reading.lags(), Partitions()
    made = Exposition(FAMILIES, lags.left_out)
    for group in reading.groups():
        members = group.get("members_total", len(group["members"]))
        made.add(_MEMBERS, labelled(("consumergroup",), group["group"]), members)
    for lag in lags:
        _add_lag(made, lag)
        partitions.learn(lag)
    for _, topic, partition, offsets in partitions:
        labels = labelled(_OFFSETS, topic, partition)
        made.add_known(_END, labels, offsets.end)
        made.add_known(_START, labels, offsets.start)
    return made


def _add_lag(made: Exposition, lag: Lag) -> None:
    for topic in topic_lags(lag.columns):
        labels = labelled(_TOPIC, lag.group, topic.topic)
        made.add_known(_OFFSET_SUM, labels, topic.committed)
        made.add_known(_LAG_SUM, labels, topic.lag)
    lags, committed, numbers = (lag.columns[name] for name in ("lag", "committed_offset", "partition"))
    for name, _, first, end in topics_of(lag.columns):
        of_topic = labelled(_TOPIC, lag.group, name)
        for row in range(first, end):
            labels = f'{of_topic},partition="{numbers[row]}"'
            made.add_known(_OFFSET, labels, committed[row])
            made.add_known(_LAG, labels, lags[row])
