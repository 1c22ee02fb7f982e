"""Facts that the offsets topic does not contain: session timeouts of newer kinds of groups, and names of topic ids.

They are requested with the admin client, which needs DescribeConfigs on the cluster and on the groups, and Describe on
the topics. What it may not read is left out, and the monitor works without it.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import BrokerNotAvailableError, ClusterAuthorizationFailedError, UnsupportedVersionError

from coordinator_model.decode.topic_ids import id_of, text_of
from coordinator_model.group_report import GroupReport
from coordinator_model.shard.topic_places import name_topics, topic_places
from streaming.connection.brokers import describe_cluster

log = structlog.get_logger(__name__)

KINDS = ("consumer", "share", "streams")
ASK_AGAIN_S = 60.0
"""How long to wait before asking again for an id without a name: its topic was deleted, or may not be described."""
MAX_IDS = 100_000
TIMEOUT_MS = 5_000


@dataclass(frozen=True, slots=True)
class SessionTimeouts:
    """Session timeouts in milliseconds by kind and group id; the id "" stands for the broker's default."""

    consumer: Mapping[str, int] = field(default_factory=dict)
    share: Mapping[str, int] = field(default_factory=dict)
    streams: Mapping[str, int] = field(default_factory=dict)


def read_session_timeouts(client: Mapping[str, Any]) -> SessionTimeouts:
    """Ask one broker for its defaults, and for the groups that override them (brokers list these from 4.1 on).

    It is the one with the lowest id: in a rolling change of the defaults brokers differ for a while, and whenever the
    answer changes, the query starts again. What may not be read is left out. Raises `KafkaError` if no broker answers.
    """
    found: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
    with closing(KafkaAdminClient(**client)) as admin:
        brokers = [node["broker_id"] for node in describe_cluster(admin)["brokers"] if not node.get("is_fenced")]
        if not brokers:
            raise BrokerNotAvailableError("all brokers are fenced")
        defaults = _keys("group.{}.session.timeout.ms")
        _add(found, admin, [ConfigResource(ConfigResourceType.BROKER, str(min(brokers)), defaults)])
        try:
            groups = [name for names in admin.list_config_resources(["GROUP"]).values() for name in names]
        except (ClusterAuthorizationFailedError, UnsupportedVersionError) as error:
            log.info("groups with session timeouts of their own cannot be listed", error=str(error))
            groups = []
        own = _keys("{}.session.timeout.ms")
        _add(found, admin, [ConfigResource(ConfigResourceType.GROUP, group, own) for group in groups])
    return SessionTimeouts(**found)


def ask_topics(client: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Ask for the partition counts and ids of all topics but internal ones (``__...``), as fields of a cluster row."""
    with closing(KafkaAdminClient(**client)) as admin:
        topics = [topic for topic in admin.describe_topics() if not topic["name"].startswith("__")]
    return {
        "topic_partitions": {topic["name"]: len(topic["partitions"]) for topic in topics},
        "topic_names": _names_by_id(topics),
    }


def _names_by_id(topics: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the names of topics by id; brokers before Kafka 2.8 report no ids."""
    ids = {UUID(str(topic_id)): topic["name"] for topic in topics if (topic_id := topic.get("topic_id"))}
    return {text_of(topic_id): name for topic_id, name in ids.items() if name and topic_id.int}


def _keys(pattern: str) -> dict[str, None]:
    return {pattern.format(kind): None for kind in KINDS}


def _add(found: dict[str, dict[str, int]], admin: KafkaAdminClient, resources: list[ConfigResource]) -> None:
    """Add the configured timeouts of these resources; those of a group only if it overrides the default."""
    if not resources:
        return
    is_broker = resources[0].resource_type is ConfigResourceType.BROKER
    for by_name in admin.describe_configs(resources, config_filter="all" if is_broker else "modified").values():
        for name, values in by_name.items():
            for key, setting in values.items():
                kind = key.removeprefix("group.").partition(".")[0]
                if (value := setting["value"] or "").isdigit():  # it has none if it may not be read
                    found[kind]["" if is_broker else name] = int(value)


class TopicNames:
    """The names of topic ids, requested when an id first appears; an id without a known name stays an id."""

    def __init__(
        self, ask: Callable[[Iterable[UUID]], Mapping[str, str]], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask, self._now_s = ask, now_s
        self._names: dict[str, str] = {}
        self._asked_s: dict[str, float] = {}

    def resolve(self, reports: Iterable[GroupReport]) -> None:
        """Replace topic ids with names in a batch's reports."""
        shown = [(report.view, report.findings) for report in reports]
        self._learn({str(holder[place]) for each in shown for holder, place in topic_places(*each)})
        for each in shown:
            name_topics(self._names, *each)

    def _learn(self, topics: set[str]) -> None:
        now_s = self._now_s()
        wanted = {
            topic: topic_id
            for topic in topics - self._names.keys()
            if (topic_id := id_of(topic)) is not None and now_s - self._asked_s.get(topic, -ASK_AGAIN_S) >= ASK_AGAIN_S
        }
        if not wanted:
            return
        if len(self._names) + len(self._asked_s) > MAX_IDS:
            self._names.clear()
            self._asked_s.clear()
        self._asked_s |= dict.fromkeys(wanted, now_s)
        try:
            self._names |= self._ask(wanted.values())
        except Exception as error:  # noqa: BLE001 # bad answers too: without names, ids are shown
            log.warning("topic ids cannot be resolved to names", ids=len(wanted), error=str(error))


def ask_topic_names(client: Mapping[str, Any], ids: Iterable[UUID]) -> dict[str, str]:
    """Ask the cluster for the names of topic ids; ids that are unknown or may not be described are left out.

    A batch waits for it, and meanwhile `run` gives no sign of life: so finding a broker has the same limit.
    """
    timeouts = {"request_timeout_ms": TIMEOUT_MS, "bootstrap_timeout_ms": TIMEOUT_MS}
    with closing(KafkaAdminClient(**{**client, **timeouts})) as admin:
        topics = admin.describe_topics(list(ids))
    return _names_by_id(topics)
