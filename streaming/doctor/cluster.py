"""Checks of a cluster: whether it can be reached and read, whether telemetry arrives, and what tier it has.

They use a client id of their own, so that a running monitor does not take their requests for its probe.
"""

import json
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import GroupAuthorizationFailedError, KafkaError

from coordinator_model.decode.telemetry.shipped import PREFIX, unwrapped
from streaming.config.kafka import READER_GROUP_PREFIX, Kafka
from streaming.connection import diagnose
from streaming.connection.brokers import describe_cluster
from streaming.connection.pushes import pushes
from streaming.doctor.check import ACL_ADVICE, Check, Status, fail, ok, warn
from streaming.doctor.tiers import would_add
from streaming.doctor.topics import check_disk, check_settings, configs_of, create_missing
from streaming.tiers import COORDINATOR_LOG, RECORDS_ONLY, REQUEST_LOG, tier_of_line

TIMEOUT_MS: Final = 10_000
LINE_TIMEOUT_S: Final = 10.0
UNKNOWN_TOPIC, NOT_AUTHORIZED = 3, 29
CREATE_ADVICE: Final = "`group-monitor doctor --create-topics` creates it"
NEWEST_LINES: Final = 200
"""How many of the newest lines of a partition are read."""
SNIPPET_ADVICE: Final = "give each broker the file that `group-monitor log4j2` prints (docs/telemetry.md)"


def check_cluster(kafka: Kafka) -> Iterator[Check]:
    """Check a cluster; end early if no broker serves us."""

    def checks(admin: KafkaAdminClient, client: Mapping[str, Any]) -> Iterator[Check]:
        with KafkaConsumer(**client, group_id=None, allow_auto_create_topics=False) as consumer:
            yield from Cluster(kafka, admin, consumer, client["client_id"]).checks()

    yield from _reached(kafka, checks)


def create_topics(kafka: Kafka) -> Iterator[Check]:
    """Create the telemetry topics that do not exist; nothing else is changed."""
    yield from _reached(kafka, lambda admin, _: create_missing(kafka, admin))


def _reached(kafka: Kafka, then: Callable[[KafkaAdminClient, Mapping[str, Any]], Iterator[Check]]) -> Iterator[Check]:
    """Yield the checks of `then` if the cluster serves us, else one that says why it does not."""
    if problem := diagnose(kafka):
        yield fail("broker", f"{problem.server}: {problem.found}", problem.advice)
        return
    client = {
        **kafka.python_client(),
        "client_id": f"group-monitor-doctor-{secrets.token_hex(4)}",
        "bootstrap_timeout_ms": TIMEOUT_MS,
        "request_timeout_ms": TIMEOUT_MS,
    }
    try:
        with KafkaAdminClient(**client) as admin:
            yield from then(admin, client)
    except (KafkaError, OSError, ValueError) as error:
        yield fail("broker", _said(error), "see the broker's log")


class Cluster:
    """The checks of a cluster that answers, in order: later ones use the results of earlier ones."""

    def __init__(self, kafka: Kafka, admin: KafkaAdminClient, consumer: KafkaConsumer, client_id: str) -> None:
        self._kafka = kafka
        self._admin = admin
        self._consumer = consumer
        self._client_id = client_id
        self._brokers: list[int] = []
        self._topics: dict[str, Mapping[str, Any]] = {}

    def checks(self) -> Iterator[Check]:
        """Yield each check as soon as it is done."""
        yield self._check_brokers()
        self._topics = {topic["name"]: topic for topic in self._admin.describe_topics(list(self._kafka.topics))}
        yield self._check_offsets()
        if self._there([self._kafka.offsets_topic]):  # a request for a coordinator creates the topic if there is none
            yield self._check_readers()
        telemetry = self._there(self._kafka.telemetry_topics)
        for name in self._kafka.telemetry_topics:
            yield self._check_exists("telemetry topic", name, SNIPPET_ADVICE)
        lines = list(self._check_lines(telemetry)) if telemetry else []
        yield from lines
        for name in self._kafka.client_telemetry_topics:
            yield self._check_reports(name)
        for name in self._there((*self._kafka.telemetry_topics, *self._kafka.client_telemetry_topics)):
            yield from self._check_topic(self._topics[name])
        heard = [broker for broker, line in zip(self._brokers, lines, strict=False) if line.status is Status.OK]
        logged = not heard and bool(telemetry) and self._has_coordinator_lines(telemetry)
        of_clients = self._there(self._kafka.client_telemetry_topics)
        reports = bool(of_clients and self._filled(of_clients))
        yield self._tier(heard, logged=logged, reports=reports)
        tier = REQUEST_LOG if heard else COORDINATOR_LOG if logged else RECORDS_ONLY
        has_topic = any(self._error_of(name) != UNKNOWN_TOPIC for name in self._kafka.client_telemetry_topics)
        yield from would_add(tier, reports=reports, has_topic=has_topic, pushes=pushes(self._admin))

    def _check_brokers(self) -> Check:
        described = describe_cluster(self._admin)
        self._brokers = sorted(broker["broker_id"] for broker in described["brokers"])
        return ok("broker", f"cluster {described['cluster_id']}, brokers {_listed(self._brokers)}")

    def _error_of(self, topic: str) -> int:
        return int(self._topics.get(topic, {"error_code": UNKNOWN_TOPIC})["error_code"])

    def _there(self, names: Iterable[str]) -> list[str]:
        """Return the topics that exist and can be read."""
        return [name for name in names if self._error_of(name) == 0 and not self._leaderless(name)]

    def _leaderless(self, topic: str) -> list[int]:
        """Return the partitions of a topic that nobody can read now."""
        return sorted(part["partition_index"] for part in self._topics[topic]["partitions"] if part["leader_id"] < 0)

    def _check_offsets(self) -> Check:
        name, topic = "records", self._kafka.offsets_topic
        if self._error_of(topic) == NOT_AUTHORIZED:
            return fail(name, f"{topic} may not be described", ACL_ADVICE)
        if self._error_of(topic):
            return warn(name, f"{topic} does not exist: no group was ever used", "nothing to do, `run` waits for it")
        if leaderless := self._leaderless(topic):
            return _no_leader(name, topic, leaderless)
        try:
            partitions, filled = self._partitions([topic]), self._filled([topic])
            if filled:
                self._consumer.assign(list(filled))
                self._consumer.seek_to_beginning(*filled)
                if not self._consumer.poll(timeout_ms=TIMEOUT_MS, max_records=1):
                    return fail(name, f"{topic} yields no record in {TIMEOUT_MS // 1000} s", "see the broker's log")
        except KafkaError as error:
            return fail(name, f"{topic} cannot be read: {_said(error)}", ACL_ADVICE)
        return ok(name, f"{topic} is readable: {len(partitions)} partitions, {len(filled)} with records")

    def _check_readers(self) -> Check:
        """Check that committed offsets may be asked for, as Spark's readers do before they read."""
        name, groups = "readers", f"groups {READER_GROUP_PREFIX}-…"
        try:
            self._admin.list_group_offsets(f"{READER_GROUP_PREFIX}-doctor")
        except GroupAuthorizationFailedError:
            return fail(name, f"{groups} may not be described; Spark's readers have such ids", ACL_ADVICE)
        except KafkaError as error:
            return fail(name, f"{groups} cannot be asked about: {_said(error)}", "see the broker's log")
        return ok(name, f"{groups} may be described: Spark's readers have such ids, and never join")

    def _check_exists(self, name: str, topic: str, advice: str) -> Check:
        if self._error_of(topic) == NOT_AUTHORIZED:
            return fail(name, f"{topic} may not be described", ACL_ADVICE)
        if self._error_of(topic):
            return warn(name, f"{topic} does not exist", "; then ".join(filter(None, [CREATE_ADVICE, advice])))
        if leaderless := self._leaderless(topic):
            return _no_leader(name, topic, leaderless)
        return ok(name, f"{topic}: {len(self._topics[topic]['partitions'])} partitions")

    def _check_lines(self, topics: list[str]) -> Iterator[Check]:
        """Send each broker a small request, one after the other, and wait for its telemetry line."""
        partitions = self._partitions(topics)
        self._consumer.assign(partitions)
        self._consumer.seek_to_end(*partitions)
        for partition in partitions:
            self._consumer.position(partition)  # resolves the end now, not at the first poll
        keys: dict[bytes | None, int] = {}
        for broker in self._brokers:
            name = f"telemetry of {broker}"
            try:
                asked_s = time.monotonic()
                self._admin.list_groups(broker_ids=[broker], states_filter=["Dead"])
                answered_ms = (time.monotonic() - asked_s) * 1000
            except KafkaError as error:
                yield fail(name, f"the broker does not answer: {_said(error)}", "is its advertised address reachable?")
                continue
            record = self._await_record(lambda line: _client_id(line.value) == self._client_id)
            if record is None:
                yield warn(name, f"answered in {answered_ms:.0f} ms, no line in {LINE_TIMEOUT_S:.0f} s", SNIPPET_ADVICE)
                continue
            taken = keys.setdefault(record.key, broker)
            if taken != broker:
                yield warn(name, f"its lines have the key of broker {taken}", "give each broker a `key` of its own")
                continue
            line_ms = (time.monotonic() - asked_s) * 1000
            shown = (record.key or b"none").decode("utf-8", "replace")
            yield ok(name, f"answered in {answered_ms:.0f} ms, its line came {line_ms:.0f} ms after, key {shown!r}")

    def _check_reports(self, topic: str) -> Check:
        name = "client reports"
        if self._error_of(topic) == UNKNOWN_TOPIC:
            advice = f"{CREATE_ADVICE}; needed only if applications report (streaming.reporter)"
            return warn(name, f"{topic} does not exist: poll ages stay unknown", advice)
        return self._check_exists(name, topic, "")

    def _check_topic(self, topic: Mapping[str, Any]) -> Iterator[Check]:
        """Check the settings and the cost of a telemetry topic."""
        found = configs_of(self._admin, topic["name"])
        yield check_settings(self._kafka, topic, found, len(self._brokers))
        try:
            yield check_disk(self._admin, self._consumer, topic, found)
        except KafkaError as error:
            yield warn("telemetry disk", f"{topic['name']}: its size may not be asked: {_said(error)}", ACL_ADVICE)

    def _has_coordinator_lines(self, topics: list[str]) -> bool:
        """Look for lines of the coordinator's own log among the newest; no request of ours makes a broker write one."""
        filled = self._filled(topics)
        self._consumer.assign(list(filled))
        for partition, (begin, end) in filled.items():
            self._consumer.seek(partition, max(begin, end - NEWEST_LINES))
        return bool(filled) and self._await_record(lambda line: tier_of_line(line.value) == COORDINATOR_LOG) is not None

    def _filled(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first and the end offset of each partition that holds records."""
        partitions = self._partitions(topics)
        begins, ends = self._consumer.beginning_offsets(partitions), self._consumer.end_offsets(partitions)
        return {place: (begins[place], ends[place]) for place in partitions if ends[place] > begins[place]}

    def _tier(self, heard: Collection[int], *, logged: bool, reports: bool) -> Check:
        """Tell the tier. `heard`: the brokers whose request log arrives, each under a key of its own."""
        clients = "with client reports" if reports else "no client reports"
        if silent := [broker for broker in self._brokers if heard and broker not in heard]:
            found = f"2 on brokers {_listed(heard)}, not yet on {_listed(silent)}, {clients}"
            unknown = f"heartbeats in groups coordinated by {_listed(silent)} stay unknown"
            return warn("tier", f"{found}: {unknown}", "see the lines `telemetry of …` above")
        if heard:
            return ok("tier", f"2: records and the request log, {clients}: violations as they happen")
        if logged:
            said = (
                f"1: records and the coordinators' own log, {clients}: causes after the fact, heartbeats stay unknown"
            )
            return ok("tier", said)
        return warn("tier", f"0: records only, {clients}: causes and heartbeats stay unknown", SNIPPET_ADVICE)

    def _partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        return [TopicPartition(t, p["partition_index"]) for t in topics for p in self._topics[t]["partitions"]]

    def _await_record(self, fits: Callable[[Any], bool]) -> Any | None:
        end_s = time.monotonic() + LINE_TIMEOUT_S
        while time.monotonic() < end_s:
            for records in self._consumer.poll(timeout_ms=100).values():
                for record in records:
                    if fits(record):
                        return record
        return None


def _no_leader(name: str, topic: str, partitions: Iterable[int]) -> Check:
    found = f"{topic}: no leader of partitions {_listed(partitions)}, so `run` reads nothing of any topic"
    return fail(name, found, "start the brokers that hold their replicas")


def _client_id(value: bytes | None) -> str | None:
    """Return the client id of the request that a telemetry line is about; None if it is no such line."""
    try:
        _, _, text = unwrapped(value or b"").partition(PREFIX)
        return str(json.JSONDecoder().raw_decode(text.decode("utf-8", "replace"))[0]["requestHeader"]["clientId"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
