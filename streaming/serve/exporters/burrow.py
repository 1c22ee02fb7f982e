"""Burrow's own metrics, and those that jirwin/burrow_exporter makes from Burrow's API: two names for one figure."""

from collections.abc import Mapping
from typing import Final

from coordinator_model.lag.topic_sums import topics_of, worst_of
from streaming.serve.exporters.reading import Partitions, Reading
from streaming.serve.exporters.text import Exposition, Family, labelled
from streaming.store.lags import Lag

_LAG: Final = "burrow_kafka_consumer_lag_total"
_STATUS: Final = "burrow_kafka_consumer_status"
_PARTITION_STATUS: Final = "burrow_kafka_topic_partition_status"
_OFFSET: Final = "burrow_kafka_consumer_current_offset"
_PARTITION_LAG: Final = "burrow_kafka_consumer_partition_lag"
_END: Final = "burrow_kafka_topic_partition_offset"
_JIRWIN_LAG: Final = "kafka_burrow_total_lag"
_JIRWIN_STATUS: Final = "kafka_burrow_status"
_JIRWIN_PARTITION_LAG: Final = "kafka_burrow_partition_lag"
_JIRWIN_OFFSET: Final = "kafka_burrow_partition_current_offset"
_JIRWIN_PARTITION_STATUS: Final = "kafka_burrow_partition_status"
_JIRWIN_MOST: Final = "kafka_burrow_partition_max_offset"
_JIRWIN_END: Final = "kafka_burrow_topic_partition_offset"

GROUP_STATUSES: Final[Mapping[str, int]] = {"ok": 1, "warn": 2, "stop": 3, "stall": 3, "rewind": 3}
"""Burrow's numbers for the status of a group. The last three are its ERR."""
PARTITION_STATUSES: Final[Mapping[str, int]] = {"ok": 1, "warn": 2, "stop": 4, "stall": 5, "rewind": 6}
_LATER: Final = 1
"""burrow_exporter's numbers are greater than Burrow's by this."""
_GROUP: Final = ("cluster", "consumer_group")
_TOPIC: Final = (*_GROUP, "topic")
_PARTITION: Final = (*_TOPIC, "partition")
_OFFSETS: Final = ("cluster", "topic", "partition")
_JIRWIN_GROUP: Final = ("cluster", "group")
_JIRWIN_TOPIC: Final = (*_JIRWIN_GROUP, "topic")
_JIRWIN_PARTITION: Final = (*_JIRWIN_TOPIC, "partition")

FAMILIES: Final[Mapping[str, Family]] = {
    _LAG: Family(_GROUP, "Messages that a group is behind."),
    _STATUS: Family(_GROUP, "Worst status of a group: 1 OK, 2 WARN, 3 ERR."),
    _PARTITION_STATUS: Family(_PARTITION, "Status of a partition: 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND."),
    _OFFSET: Family(_PARTITION, "Committed offset of a group in a partition."),
    _PARTITION_LAG: Family(_PARTITION, "Messages that a group is behind in a partition."),
    _END: Family(_OFFSETS, "End offset of a partition that a group commits to."),
    _JIRWIN_LAG: Family(_JIRWIN_GROUP, "Messages that a group is behind."),
    _JIRWIN_STATUS: Family(_JIRWIN_GROUP, "Worst status of a group: 2 OK, 3 WARN, 4 ERR."),
    _JIRWIN_PARTITION_LAG: Family(_JIRWIN_PARTITION, "Messages that a group is behind in a partition."),
    _JIRWIN_OFFSET: Family(_JIRWIN_PARTITION, "Committed offset of a group in a partition."),
    _JIRWIN_PARTITION_STATUS: Family(
        _JIRWIN_PARTITION, "Status of a partition: 2 OK, 3 WARN, 5 STOP, 6 STALL, 7 REWIND."
    ),
    _JIRWIN_MOST: Family(_JIRWIN_PARTITION, "End offset of a partition that a group commits to."),
    _JIRWIN_END: Family(_OFFSETS, "End offset of a partition that a group commits to."),
}


def exposition(reading: Reading) -> Exposition:
    """Collect all samples."""
    lags, partitions = reading.lags(), Partitions()
    made = Exposition(FAMILIES, lags.left_out)
    for lag in lags:
        _add_group(made, lag)
        _add_partitions(made, lag)
        partitions.learn(lag)
    for cluster, topic, partition, offsets in partitions:
        labels = labelled(_OFFSETS, cluster, topic, partition)
        made.add_known(_END, labels, offsets.end)
        made.add_known(_JIRWIN_END, labels, offsets.end)
    return made


def _add_group(made: Exposition, lag: Lag) -> None:
    status = GROUP_STATUSES.get(worst_of(lag.columns["status"]))
    ours, jirwins = labelled(_GROUP, lag.cluster, lag.group), labelled(_JIRWIN_GROUP, lag.cluster, lag.group)
    made.add_known(_LAG, ours, lag.lag)
    made.add_known(_JIRWIN_LAG, jirwins, lag.lag)
    if status is not None:
        made.add(_STATUS, ours, status)
        made.add(_JIRWIN_STATUS, jirwins, status + _LATER)


def _add_partitions(made: Exposition, lag: Lag) -> None:
    numbers, statuses, lags, committed, ends = (
        lag.columns[name] for name in ("partition", "status", "lag", "committed_offset", "end_offset")
    )
    for topic, _, first, end in topics_of(lag.columns):
        of_topic = labelled(_TOPIC, lag.cluster, lag.group, topic)
        of_jirwins = labelled(_JIRWIN_TOPIC, lag.cluster, lag.group, topic)
        for row in range(first, end):
            ours, jirwins = (f'{labels},partition="{numbers[row]}"' for labels in (of_topic, of_jirwins))
            made.add_known(_PARTITION_LAG, ours, lags[row])
            made.add_known(_JIRWIN_PARTITION_LAG, jirwins, lags[row])
            made.add_known(_OFFSET, ours, committed[row])
            made.add_known(_JIRWIN_OFFSET, jirwins, committed[row])
            made.add_known(_JIRWIN_MOST, jirwins, ends[row])
            if (status := PARTITION_STATUSES.get(statuses[row])) is not None:
                made.add(_PARTITION_STATUS, ours, status)
                made.add(_JIRWIN_PARTITION_STATUS, jirwins, status + _LATER)
