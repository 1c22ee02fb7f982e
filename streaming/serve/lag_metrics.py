"""Metrics of lag, declared once like those of `metrics`: by group and topic, and by partition if configured.

What is not known has no sample. Wherever an exporter wrote -1 or NaN for "unknown", somebody has taken it for a lag.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from coordinator_model.lag.topic_sums import TopicSums, topics_of
from streaming.store.lags import STATUSES, Lag, Lags, LagTotals, topic_lags

TOPIC_SERIES = 10_000
PARTITION_SERIES = 20_000
PARTITIONS_READ = 250_000
"""Most partitions read at a scrape, for the groups with series of their own. The store has at most 5,000 of a group."""

LAG: Final = "group_monitor_lag"
LAG_AGE: Final = "group_monitor_lag_age_seconds"
LAG_GROUPS: Final = "group_monitor_groups_by_lag_status"
GROUP_LAG: Final = "group_monitor_group_lag"
GROUP_LAG_STATUS: Final = "group_monitor_group_lag_status"
GROUP_LAG_TIME: Final = "group_monitor_group_lag_seconds"
GROUP_STALLED: Final = "group_monitor_group_stalled_partitions"
GROUP_LAG_UNKNOWN: Final = "group_monitor_group_lag_unknown_partitions"
GROUP_COMMITS: Final = "group_monitor_group_offset_commits_total"
TOPIC_LAG: Final = "group_monitor_group_topic_lag"
TOPIC_LAG_STATUS: Final = "group_monitor_group_topic_lag_status"
TOPIC_LAG_TIME: Final = "group_monitor_group_topic_lag_seconds"
TOPIC_STALLED: Final = "group_monitor_group_topic_stalled_partitions"
TOPIC_COMMITTED: Final = "group_monitor_group_topic_committed_offsets"
TOPIC_END: Final = "group_monitor_group_topic_end_offsets"
PARTITION_LAG: Final = "group_monitor_group_partition_lag"
PARTITION_LAG_STATUS: Final = "group_monitor_group_partition_lag_status"
PARTITION_LAG_TIME: Final = "group_monitor_group_partition_lag_seconds"
PARTITION_COMMITTED: Final = "group_monitor_group_partition_committed_offset"
PARTITION_END: Final = "group_monitor_group_partition_end_offset"
LAGS_WITHOUT_SERIES: Final = "group_monitor_lags_without_series"

STATUS_NUMBERS: Final[Mapping[str, int]] = {name: number for number, name in enumerate(STATUSES)}
_NUMBERS: Final = ", ".join(f"{number} {name}" for name, number in STATUS_NUMBERS.items())

HELP: Final[Mapping[str, str]] = {
    LAG: "Messages that the groups of a cluster have not committed, as far as is known.",
    LAG_AGE: "Age of the newest lag of a cluster: when the end offsets were asked.",
    LAG_GROUPS: "Groups by the worst status that is known of their partitions; unknown if none is known.",
    GROUP_LAG: "Messages that a group has not committed, of all partitions of which that is known.",
    GROUP_LAG_STATUS: f"Worst known status of a group's partitions: {_NUMBERS}; no sample where none is known.",
    GROUP_LAG_TIME: "How long the oldest message that a group has not committed has waited, at the least.",
    GROUP_STALLED: "Partitions whose owner is alive and has not committed them for far longer than usual.",
    GROUP_LAG_UNKNOWN: "Partitions whose lag is not known, and not in the group's lag.",
    GROUP_COMMITS: "Offset commits of a group, since its checkpoint began.",
    TOPIC_LAG: "Messages of a topic that a group has not committed, of all partitions of which that is known.",
    TOPIC_LAG_STATUS: f"Worst known status of a group's partitions of a topic: {_NUMBERS}.",
    TOPIC_LAG_TIME: "How long the oldest message of a topic that a group has not committed has waited, at the least.",
    TOPIC_STALLED: f"Partitions of a topic that are stalled, as in {GROUP_STALLED}.",
    TOPIC_COMMITTED: "Sum of a group's committed offsets of a topic; its rate is what the group commits a second.",
    TOPIC_END: "Sum of the end offsets of the same partitions, if all are known; its rate is what is written a second.",
    PARTITION_LAG: "Messages of a partition that a group has not committed. Needs [serve] partition_metrics.",
    PARTITION_LAG_STATUS: f"Status of a partition: {_NUMBERS}. Needs [serve] partition_metrics.",
    PARTITION_LAG_TIME: "How long a partition's oldest message has waited. Needs [serve] partition_metrics.",
    PARTITION_COMMITTED: "Committed offset of a partition. Needs [serve] partition_metrics.",
    PARTITION_END: "End offset of a partition. Needs [serve] partition_metrics.",
    LAGS_WITHOUT_SERIES: "Groups, topics and partitions whose lag is beyond the bounds on series; the API has them.",
}
_OF_GROUP: Final = ("cluster", "group")
_OF_TOPIC: Final = (*_OF_GROUP, "topic")
_OF_PARTITION: Final = (*_OF_TOPIC, "partition")
_COLUMN_OF: Final = {
    PARTITION_LAG: "lag",
    PARTITION_COMMITTED: "committed_offset",
    PARTITION_END: "end_offset",
}

Samples = dict[str, list[tuple[tuple[str, ...], float]]]


def labels_of(name: str) -> tuple[str, ...]:
    """Return the label names of one of the metrics."""
    by_kind = {"group_monitor_group_topic_": _OF_TOPIC, "group_monitor_group_partition_": _OF_PARTITION}
    return _FEW.get(name) or next((labels for begin, labels in by_kind.items() if name.startswith(begin)), _OF_GROUP)


_FEW: Final[Mapping[str, tuple[str, ...]]] = {
    LAG: ("cluster",),
    LAG_AGE: ("cluster",),
    LAG_GROUPS: ("cluster", "status"),
    LAGS_WITHOUT_SERIES: ("of",),
}


def samples(totals: list[LagTotals], lags: Lags, now_ms: int, *, by_partition: bool) -> Samples:
    """Return the samples of every metric except those that are in a group's row (its lag and its status)."""
    made: Samples = {name: [] for name in HELP}
    _add_totals(made, totals, now_ms)
    topics_left_out = partitions_left_out = 0
    for lag in lags:
        topics = sorted(topic_lags(lag.columns), key=_badness)
        room = TOPIC_SERIES - len(made[TOPIC_STALLED])
        topics_left_out += lag.topics_left_out + max(0, len(topics) - room)
        _add_group(made, lag, topics)
        for topic in topics[: max(0, room)]:
            _add_topic(made, (lag.cluster, lag.group, topic.topic), topic)
        if by_partition:
            partitions_left_out += lag.partitions - _add_partitions(made, lag)
    made[LAGS_WITHOUT_SERIES] = [(("group",), lags.left_out), (("topic",), topics_left_out)]
    if by_partition:
        made[LAGS_WITHOUT_SERIES].append((("partition",), partitions_left_out))
    return made


def _badness(topic: TopicSums) -> tuple[int, int, str]:
    return -STATUS_NUMBERS.get(topic.status, 0), -(topic.lag or 0), topic.topic


def _add_totals(made: Samples, totals: list[LagTotals], now_ms: int) -> None:
    messages: dict[str, float] = {}
    newest: dict[str, int] = {}
    for total in totals:
        made[LAG_GROUPS].append(((total.cluster, total.status), total.groups))
        newest[total.cluster] = max(total.newest_ms, newest.get(total.cluster, 0))
        if total.lag is not None:
            messages[total.cluster] = messages.get(total.cluster, 0) + total.lag
    made[LAG] = [((cluster,), value) for cluster, value in messages.items()]
    made[LAG_AGE] = [((cluster,), max(0, now_ms - at_ms) / 1_000) for cluster, at_ms in newest.items()]


def _add_group(made: Samples, lag: Lag, topics: list[TopicSums]) -> None:
    labels = (lag.cluster, lag.group)
    waiting = [topic.lag_ms for topic in topics if topic.lag_ms is not None]
    if waiting:
        made[GROUP_LAG_TIME].append((labels, max(waiting) / 1_000))
    if not lag.topics_left_out:
        made[GROUP_STALLED].append((labels, sum(topic.stalled for topic in topics)))
        made[GROUP_LAG_UNKNOWN].append((labels, sum(topic.unknown for topic in topics)))
    if (commits := lag.columns.get("commits")) is not None:
        made[GROUP_COMMITS].append((labels, commits))


def _add_topic(made: Samples, labels: tuple[str, ...], topic: TopicSums) -> None:
    seconds = None if topic.lag_ms is None else topic.lag_ms / 1_000
    facts = {
        TOPIC_LAG: topic.lag,
        TOPIC_LAG_TIME: seconds,
        TOPIC_LAG_STATUS: STATUS_NUMBERS.get(topic.status),
        TOPIC_STALLED: topic.stalled,
        TOPIC_COMMITTED: topic.committed,
        TOPIC_END: topic.end,
    }
    for name, value in facts.items():
        if value is not None:
            made[name].append((labels, value))


def _add_partitions(made: Samples, lag: Lag) -> int:
    """Add samples for each partition, if there is room for all of the group's; return how many have samples."""
    columns = lag.columns
    if len(made[PARTITION_LAG]) + len(columns["partition"]) > PARTITION_SERIES:
        return 0
    for row, labels in _labelled(lag):
        for name, column in _COLUMN_OF.items():
            if (value := columns[column][row]) is not None:
                made[name].append((labels, value))
        if (lag_ms := columns["lag_ms"][row]) is not None:
            made[PARTITION_LAG_TIME].append((labels, lag_ms / 1_000))
        if (number := STATUS_NUMBERS.get(columns["status"][row])) is not None:
            made[PARTITION_LAG_STATUS].append((labels, number))
    return len(columns["partition"])


def _labelled(lag: Lag) -> Iterator[tuple[int, tuple[str, ...]]]:
    for topic, _, first, end in topics_of(lag.columns):
        for row in range(first, end):
            yield row, (lag.cluster, lag.group, topic, str(lag.columns["partition"][row]))
