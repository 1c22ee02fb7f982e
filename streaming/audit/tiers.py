"""Which sources a cluster has for a monitor today, and what each further source would add."""

import time
from collections.abc import Collection, Mapping
from contextlib import closing
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from streaming.connection.pushes import Pushes
from streaming.tiers import COORDINATOR_LOG, RECORDS_ONLY, REQUEST_LOG, tier_of_line

NEWEST_LINES: Final = 200
"""How many of the newest lines of a partition are read. The request log has two a second from the monitor's probe."""
POLL_MS: Final = 200


def sources(tier: int, *, records: bool, reports: bool, pushes: Pushes) -> list[dict[str, Any]]:
    """Return the sources, and whether the cluster has each. The contract calls a source's name `tier`.

    `tier`: the tier of its telemetry topics; `reports`: whether clients report.
    """
    return [
        {
            "tier": "records",
            "has": records,
            "adds": "members, their assignments and timeouts, rebalances, joins and leaves; not why, nor who is alive",
            "command": "group-monitor doctor --acls",
        },
        {
            "tier": "coordinator's log",
            "has": tier >= COORDINATOR_LOG,
            "adds": "why each member was removed, after the fact, without a cost per request",
            "command": "group-monitor log4j2 --tier 1",
        },
        {
            "tier": "request log",
            "has": tier >= REQUEST_LOG,
            "adds": "heartbeats, how close each member is to its session timeout, and which exceed it, as it happens",
            "command": "group-monitor log4j2",
        },
        {
            "tier": "pushed metrics",
            "has": pushes in (Pushes.TAKEN, Pushes.ASKED_FOR),
            "adds": "with the request log: how long ago Java clients polled, and which librdkafka clients hang",
            "command": "group-monitor doctor",
        },
        {
            "tier": "client reports",
            "has": reports,
            "adds": "when each application last polled: which are close to max.poll.interval.ms",
            "command": "group-monitor doctor --create-topics",
        },
    ]


def tier_of(client: Mapping[str, Any], topics: Collection[str], deadline_s: float) -> int:
    """Return the tier of the newest lines in telemetry topics, which have to exist; stop at `deadline_s` (monotonic).

    A broker that ships the request log also ships the coordinator's log, whose lines are rare.
    """
    with closing(KafkaConsumer(**client, group_id=None, allow_auto_create_topics=False)) as consumer:
        try:
            return _newest(consumer, topics, deadline_s)
        except KafkaError:
            return RECORDS_ONLY


def _newest(consumer: Any, topics: Collection[str], deadline_s: float) -> int:
    places = [
        TopicPartition(topic, number) for topic in topics for number in consumer.partitions_for_topic(topic) or ()
    ]
    begins, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
    left = [place for place in places if ends[place] > begins[place]]
    consumer.assign(left)
    for place in left:
        consumer.seek(place, max(begins[place], ends[place] - NEWEST_LINES))
    tier = RECORDS_ONLY
    while tier < REQUEST_LOG and left and time.monotonic() < deadline_s:
        polled = consumer.poll(timeout_ms=POLL_MS)
        tier = max([tier, *(tier_of_line(record.value) for records in polled.values() for record in records)])
        left = [place for place in left if consumer.position(place) < ends[place]]
    return tier
