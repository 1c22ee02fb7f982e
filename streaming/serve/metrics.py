"""Every metric of `/metrics`, declared once; dashboards import the names. Values are read from the store at scrape.

The number of series is bounded. There are totals by cluster, type, state and rule. Only `GROUP_SERIES` groups have
series of their own (the worst first, `streaming.store.order`). Members have none, because member ids are unbounded.
Members with the least headroom, and those that a rebalance waits for, are named by client and host. Lag is in
`lag_metrics`.
"""

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from coordinator_model import states
from coordinator_model.rules.registry import RULES
from coordinator_model.states import REBALANCING
from streaming.config.settings import Settings
from streaming.serve import lag_metrics
from streaming.serve.health import Health
from streaming.store import Store
from streaming.store.batch import OWN_RULES
from streaming.store.database import clean
from streaming.store.generations import MOVED
from streaming.store.histogram import buckets
from streaming.store.reader import StoredGroupState
from streaming.store.store import wall_ms

GROUP_SERIES = 2_000
MEMBER_SERIES = 20
REBALANCING_GROUPS = 50  # the worst groups in a rebalance, whose views are read at every scrape
NEWEST_GENERATIONS = 200
LABEL_CHARACTERS = 256  # of a label's value: an id may have 32 KiB, and is in several series
HASH_CHARACTERS = 12
NAMES_A_COUNTER = 200  # per kind and cluster: there are few reasons and causes, unless somebody attacks the monitor

RULE_IDS: Final = (*(rule.id for rule in RULES), *OWN_RULES)

_CLIENT: Final = ("cluster", "group", "client_id", "client_host")

GROUPS: Final = "group_monitor_groups"
MEMBERS: Final = "group_monitor_members"
GROUP_INFO: Final = "group_monitor_group_info"
GROUP_STATE: Final = "group_monitor_group_state"
GROUP_GENERATION: Final = "group_monitor_group_generation"
GROUP_MEMBERS: Final = "group_monitor_group_members"
GROUP_HEADROOM: Final = "group_monitor_group_worst_heartbeat_headroom_ratio"
MEMBER_HEADROOM: Final = "group_monitor_worst_member_heartbeat_headroom_ratio"
GROUP_POLL_HEADROOM: Final = "group_monitor_group_worst_poll_headroom_ratio"
MEMBER_POLL_HEADROOM: Final = "group_monitor_worst_member_poll_headroom_ratio"
GROUPS_WITHOUT_SERIES: Final = "group_monitor_groups_without_series"
GENERATIONS: Final = "group_monitor_generations_total"
PARTITIONS_MOVED: Final = "group_monitor_partitions_moved_total"
GROUP_MOVED: Final = "group_monitor_group_partitions_moved"
PHASE_STARTED: Final = "group_monitor_group_rebalance_phase_started_timestamp_seconds"
WAITED_FOR: Final = "group_monitor_group_members_waited_for"
INCIDENTS_OPEN: Final = "group_monitor_incidents_open"
INCIDENTS_OPENED: Final = "group_monitor_incidents_opened_total"
INCIDENTS_CLOSED: Final = "group_monitor_incidents_closed_total"
INCIDENTS_REFUTED: Final = "group_monitor_incidents_refuted_total"
GROUP_INCIDENTS: Final = "group_monitor_group_incidents_open"
GROUP_INCIDENTS_TOLD: Final = "group_monitor_group_incidents_told"
GROUP_INCIDENT_OPENED: Final = "group_monitor_group_incident_opened_timestamp_seconds"
TELEMETRY_DELAY: Final = "group_monitor_telemetry_delay_seconds"
BROKER_PROGRESS_AGE: Final = "group_monitor_broker_progress_age_seconds"
BROKER_COVERED: Final = "group_monitor_broker_covered"
SHARD_PROGRESS_AGE: Final = "group_monitor_slowest_shard_age_seconds"
HELD_ROWS: Final = "group_monitor_held_rows"
INGESTED: Final = "group_monitor_ingested_total"
DECODED: Final = "group_monitor_records_decoded_total"
ROWS_REJECTED: Final = "group_monitor_rows_rejected_total"
QUARANTINED: Final = "group_monitor_quarantined_rows_total"
END_OFFSETS_UNANSWERED: Final = "group_monitor_end_offsets_unanswered_total"
BATCH_DURATION: Final = "group_monitor_batch_duration_seconds"
DETECTION_DELAY: Final = "group_monitor_detection_delay_seconds"
OUTBOX_PENDING: Final = "group_monitor_outbox_pending"
OUTBOX_AGE: Final = "group_monitor_outbox_oldest_age_seconds"
OUTBOX_DEAD: Final = "group_monitor_outbox_dead"
RUN_ALIVE_AGE: Final = "group_monitor_run_alive_age_seconds"
RUN_CAUGHT_UP: Final = "group_monitor_run_caught_up"
STALLED: Final = "group_monitor_stalled"
QUALITY: Final = "group_monitor_data_quality_success"
LEADER: Final = "group_monitor_notifier_leader"
STORE_ERRORS: Final = "group_monitor_store_errors_total"
BUILD_INFO: Final = "group_monitor_build_info"

STATE_NUMBERS: Final = {state.value: number for number, state in enumerate(states.GroupState)}
"""Dashboards and alert rules refer to these numbers, so a new state has to be added at the end."""

HELP: Final[Mapping[str, str]] = {
    GROUPS: "Consumer groups by type and state.",
    MEMBERS: "Members by liveness: alive, violated, or unknown because telemetry is missing.",
    GROUP_INFO: "1 for each group with a series of its own; its labels are the facts and those of [[groups]].",
    GROUP_STATE: f"State of a group: {', '.join(f'{number} {state}' for state, number in STATE_NUMBERS.items())}.",
    GROUP_GENERATION: "Generation (epoch of a KIP-848 group); each rebalance adds at least one.",
    GROUP_MEMBERS: "Members of a group.",
    GROUP_HEADROOM: "The least share of its session timeout that any member of a group has left.",
    MEMBER_HEADROOM: "The least share of a session timeout left, of the members worst off; ids are in the API.",
    GROUP_POLL_HEADROOM: "The least share of max.poll.interval.ms any member of a group has left, as clients report.",
    MEMBER_POLL_HEADROOM: "The least share of max.poll.interval.ms left, of the members worst off; ids are in the API.",
    GROUPS_WITHOUT_SERIES: "Groups beyond the bound on series.",
    GENERATIONS: "Generations seen to begin, by cause.",
    PARTITIONS_MOVED: "Partitions that a new generation took from one member and gave to another.",
    GROUP_MOVED: "Partitions that the newest generation of a group moved, for the groups that rebalanced last.",
    PHASE_STARTED: "When the current phase (join, sync, reconciliation) of a rebalance began, in Unix seconds.",
    WAITED_FOR: "Members that a current rebalance waits for, as far as is known, by client and host.",
    INCIDENTS_OPEN: "Open incidents.",
    INCIDENTS_OPENED: "Incidents opened; 0 for a rule that has had none.",
    INCIDENTS_CLOSED: "Incidents closed, by reason.",
    INCIDENTS_REFUTED: "Incidents that the broker later proved wrong; the goal is zero.",
    GROUP_INCIDENTS: "Open incidents of a group, for the groups whose incidents are the worst and the oldest.",
    GROUP_INCIDENTS_TOLD: 'Open incidents of a group that receivers are told of; with mode = "record" there are none.',
    GROUP_INCIDENT_OPENED: "When the oldest open incident of a group, rule and severity began, in Unix seconds.",
    TELEMETRY_DELAY: "How old the newest line of a broker was when it was read; its probe makes two a second.",
    BROKER_PROGRESS_AGE: "Age of the newest telemetry line of a broker.",
    BROKER_COVERED: "1 while no line of a broker is known to be missing.",
    SHARD_PROGRESS_AGE: "Age of the newest instant up to which the slowest shard of a cluster has been judged.",
    HELD_ROWS: "Rows that wait for a slower source.",
    INGESTED: "Rows and records read, by outcome.",
    DECODED: "Records of the offsets topic by type, version and what became of them; a tombstone has no version.",
    ROWS_REJECTED: "Rows that could not be read; 0 before the first, so that its growth shows a first burst, too.",
    QUARANTINED: "Rows that could not be read, by source and reason.",
    END_OFFSETS_UNANSWERED: "Partitions or topics whose end offsets were not given, by error, summed over all rounds.",
    BATCH_DURATION: "Duration of a batch of run, from end to end.",
    DETECTION_DELAY: "From a deadline to the incident in the outbox.",
    OUTBOX_PENDING: 'Messages not delivered yet; receiver "": written by run, not yet assigned to receivers by serve.',
    OUTBOX_AGE: "Age of the oldest message not delivered yet.",
    OUTBOX_DEAD: "Messages given up.",
    RUN_ALIVE_AGE: "Age of the newest sign of life of run.",
    RUN_CAUGHT_UP: "1 once run has read what was there when it started.",
    STALLED: "1 while run gives no sign of life for longer than monitor_stalled_ms, or two minutes if it catches up.",
    QUALITY: "1 for each expectation of data quality that was met at the last check.",
    LEADER: "1 while this serve is the one that sends, of those that share the database.",
    STORE_ERRORS: "Times that this serve could not read or write its database.",
    BUILD_INFO: "1; its label is the version of this serve.",
    **lag_metrics.HELP,
}


class Series(NamedTuple):
    """One sample: label values in the order of the family's label names."""

    labels: Sequence[str]
    value: float


class StoreCollector(Collector):
    """A collector that reads the store at every scrape and keeps nothing."""

    def __init__(self, store: Store, settings: Settings, health: Health, clock: Callable[[], int] = wall_ms) -> None:
        self._clock = clock
        self._store = store
        self._settings = settings
        self._health = health
        self._label_names = sorted({name for block in settings.groups for name in block.labels})

    def collect(self) -> Iterator[Metric]:
        """Yield all families, even without samples, so that a dashboard can distinguish zero from absent."""
        now_ms = self._clock()
        counters = self._store.read.counters()
        shown = self._store.read.group_states(GROUP_SERIES)
        yield from self._of_groups(shown)
        yield from self._of_lag(shown, now_ms)
        yield from self._of_rebalances(counters)
        yield from self._of_incidents(counters)
        yield from self._of_sources(counters, now_ms)
        yield from self._of_outbox(now_ms)
        yield from self._of_runs(counters)
        met = (Series(result[:3], result.success) for result in self._store.read.quality())
        yield gauge(QUALITY, ("cluster", "suite", "expectation"), met)
        yield gauge(LEADER, (), [Series((), self._health.leads())])
        yield counter(STORE_ERRORS, (), [Series((), self._store.errors)])
        yield gauge(BUILD_INFO, ("version",), [Series((version("kafka-group-monitor"),), 1)])

    def _of_groups(self, shown: Sequence[StoredGroupState]) -> Iterator[Metric]:
        totals = self._store.read.group_totals()
        yield gauge(GROUPS, ("cluster", "type", "state"), (Series(row[:3], row.groups) for row in totals))
        liveness = (
            Series((row.cluster, row.type, row.state, name), value)
            for row in totals
            for name, value in (
                ("alive", row.members - row.violated - row.unknown),
                ("violated", row.violated),
                ("unknown", row.unknown),
            )
        )
        yield gauge(MEMBERS, ("cluster", "type", "state", "liveness"), liveness)
        beyond = sum(row.groups for row in totals) - len(shown)
        yield gauge(GROUPS_WITHOUT_SERIES, (), [Series((), max(0, beyond))])
        info = (Series(self._info(state), 1) for state in shown)
        yield gauge(GROUP_INFO, ("cluster", "group", "type", "state", *self._label_names), info)
        by = ("cluster", "group")
        numbers = (Series(s[:2], STATE_NUMBERS[s.state]) for s in shown if s.state in STATE_NUMBERS)
        yield gauge(GROUP_STATE, by, numbers)
        generations = (Series(state[:2], state.generation) for state in shown if state.generation is not None)
        yield gauge(GROUP_GENERATION, by, generations)
        yield gauge(GROUP_MEMBERS, by, (Series(state[:2], state.members) for state in shown))
        headrooms = (Series(state[:2], state.worst_headroom) for state in shown if state.worst_headroom is not None)
        yield gauge(GROUP_HEADROOM, by, headrooms)
        polls = (Series(s[:2], s.worst_poll_headroom) for s in shown if s.worst_poll_headroom is not None)
        yield gauge(GROUP_POLL_HEADROOM, by, polls)
        yield self._worst_members(MEMBER_HEADROOM, "worst_headroom", "heartbeat_headroom")
        yield self._worst_members(MEMBER_POLL_HEADROOM, "worst_poll_headroom", "poll_headroom")

    def _of_lag(self, shown: Sequence[StoredGroupState], now_ms: int) -> Iterator[Metric]:
        """Yield the metrics of lag. A group's lag and status are in its row; the others need its partitions."""
        lags = self._store.lags.worst_first(GROUP_SERIES, lag_metrics.PARTITIONS_READ)
        by_partition = self._settings.serve.partition_metrics
        samples = lag_metrics.samples(self._store.lags.totals(), lags, now_ms, by_partition=by_partition)
        numbers = lag_metrics.STATUS_NUMBERS
        samples[lag_metrics.GROUP_LAG] = [(s[:2], s.lag) for s in shown if s.lag is not None]
        known = (s for s in shown if s.lag_status in numbers)
        samples[lag_metrics.GROUP_LAG_STATUS] = [(s[:2], numbers[str(s.lag_status)]) for s in known]
        for name in lag_metrics.HELP:
            family = counter if name.endswith("_total") else gauge
            yield family(name, lag_metrics.labels_of(name), (Series(*sample) for sample in samples[name]))

    def _worst_members(self, metric: str, column: str, field: str) -> Metric:
        """Return the members with the least headroom; two of one client and host share a series: the lesser value."""
        worst: dict[tuple[str, ...], float] = {}
        for group in self._store.read.groups_worst_off(MEMBER_SERIES, column):
            for member in group["members"]:
                if (headroom := member.get(field)) is not None:
                    key = _client(group, member)
                    worst[key] = min(headroom, worst.get(key, 1.0))
        chosen = sorted(worst.items(), key=lambda item: (item[1], item[0]))[:MEMBER_SERIES]
        return gauge(metric, _CLIENT, (Series(key, value) for key, value in chosen))

    def _of_rebalances(self, counters: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
        started: list[Series] = []
        waited_for: Counter[tuple[str, ...]] = Counter()
        for group in self._store.read.groups_in(REBALANCING, REBALANCING_GROUPS):
            if not (phase := group.get("rebalance")):  # assigning, or written before an upgrade
                continue
            started.append(Series((*_names(group), phase["phase"]), phase["since_ms"] / 1_000))
            awaited = set(phase["waiting_for"])
            waited_for.update(_client(group, member) for member in group["members"] if member["member_id"] in awaited)
        yield gauge(PHASE_STARTED, ("cluster", "group", "phase"), started)
        yield gauge(WAITED_FOR, _CLIENT, (Series(key, value) for key, value in waited_for.items()))
        yield counter(GENERATIONS, ("cluster", "cause"), named(counters, "generations", 1))
        moved = (Series((cluster,), counts.get(MOVED, 0)) for cluster, counts in counters.items())
        yield counter(PARTITIONS_MOVED, ("cluster",), moved)
        moves = self._store.read.newest_moves(NEWEST_GENERATIONS)
        yield gauge(GROUP_MOVED, ("cluster", "group"), (Series(move[:2], move.partitions) for move in moves))

    def _info(self, state: StoredGroupState) -> tuple[str, ...]:
        labels = self._settings.policy_for(state.group).labels if self._label_names else {}
        return (*state[:4], *(labels.get(name, "") for name in self._label_names))

    def _of_incidents(self, counters: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
        by = ("cluster", "rule", "severity")
        yield gauge(INCIDENTS_OPEN, by, (Series(row[:3], row.incidents) for row in self._store.read.open_totals()))
        opened = {(cluster, rule): 0.0 for cluster in counters for rule in RULE_IDS}
        opened |= {(cluster, rule): value for (cluster, rule), value in named(counters, "opened", 1)}
        yield counter(INCIDENTS_OPENED, ("cluster", "rule"), itertools.starmap(Series, opened.items()))
        yield counter(INCIDENTS_CLOSED, ("cluster", "rule", "reason"), named(counters, "closed", 2))
        by_group = self._store.read.open_by_group(GROUP_SERIES)
        of_group = ("cluster", "group", "rule", "severity")
        yield gauge(GROUP_INCIDENTS, of_group, (Series(row[:4], row.incidents) for row in by_group))
        told = (Series(row[:4], row.told) for row in by_group if row.told)
        yield gauge(GROUP_INCIDENTS_TOLD, of_group, told)
        yield gauge(GROUP_INCIDENT_OPENED, of_group, (Series(row[:4], row.opened_ms / 1_000) for row in by_group))
        yield counter(INCIDENTS_REFUTED, ("cluster",), summed(counters, _is_refuted))
        yield histogram(DETECTION_DELAY, counters, "detection")

    def _of_sources(self, counters: Mapping[str, Mapping[str, int]], now_ms: int) -> Iterator[Metric]:
        brokers = self._store.read.brokers()
        by = ("cluster", "broker")
        delays = (Series(row[:2], row.delay_ms / 1_000) for row in brokers if row.delay_ms is not None)
        yield gauge(TELEMETRY_DELAY, by, delays)
        ages = (Series(row[:2], max(0, now_ms - row.progress_ms) / 1_000) for row in brokers)
        yield gauge(BROKER_PROGRESS_AGE, by, ages)
        yield gauge(BROKER_COVERED, by, (Series(row[:2], row.covered) for row in brokers))
        shards = self._store.read.shards()
        slowest = [Series(row[:1], max(0, now_ms - row.slowest_ms) / 1_000) for row in shards if row.slowest_ms]
        yield gauge(SHARD_PROGRESS_AGE, ("cluster",), slowest)
        yield gauge(HELD_ROWS, ("cluster",), (Series(row[:1], row.held) for row in shards))
        yield counter(INGESTED, ("cluster", "outcome"), named(counters, "ingest", 1))
        yield counter(DECODED, ("cluster", "type", "version", "outcome"), named(counters, "decoded", 3))
        yield counter(ROWS_REJECTED, ("cluster",), summed(counters, lambda name: name.startswith("quarantined:")))
        yield counter(QUARANTINED, ("cluster", "source", "reason"), named(counters, "quarantined", 2))
        yield counter(END_OFFSETS_UNANSWERED, ("cluster", "error"), named(counters, "end-offsets", 1))

    def _of_outbox(self, now_ms: int) -> Iterator[Metric]:
        totals = self._store.outbox.totals()
        by = ("receiver",)
        yield gauge(OUTBOX_PENDING, by, (Series((row.receiver,), row.pending) for row in totals))
        yield gauge(OUTBOX_DEAD, by, (Series((row.receiver,), row.dead) for row in totals))
        ages = (Series((row.receiver,), max(0, now_ms - (row.oldest_ms or now_ms)) / 1_000) for row in totals)
        yield gauge(OUTBOX_AGE, by, ages)

    def _of_runs(self, counters: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
        runs = self._store.read.runs()
        by = ("cluster",)
        yield gauge(RUN_ALIVE_AGE, by, (Series(run[:1], max(0, run.silent_ms) / 1_000) for run in runs))
        yield gauge(RUN_CAUGHT_UP, by, (Series(run[:1], run.caught_up) for run in runs))
        yield gauge(STALLED, by, (Series(run[:1], self._health.stalled(run)) for run in runs))
        yield histogram(BATCH_DURATION, counters, "batch")


def exposition(store: Store, settings: Settings, health: Health, clock: Callable[[], int] = wall_ms) -> bytes:
    """Return all metrics in Prometheus' text format, including those of the process (`process_*`)."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(StoreCollector(store, settings, health, clock))
    return generate_latest(registry)


def gauge(name: str, labels: Sequence[str], samples: Iterable[Series]) -> Metric:
    """Make a gauge family."""
    family = GaugeMetricFamily(name, HELP[name], labels=labels)
    for sample in samples:
        family.add_metric([label(value) for value in sample.labels], float(sample.value))
    return family


def counter(name: str, labels: Sequence[str], samples: Iterable[Series]) -> Metric:
    """Make a counter family."""
    family = CounterMetricFamily(name, HELP[name], labels=labels)
    for sample in samples:
        family.add_metric([label(value) for value in sample.labels], float(sample.value))
    return family


def label(value: str) -> str:
    """Cut a label's value to `LABEL_CHARACTERS`. A cut value ends with a hash, so that values stay distinct."""
    text = clean(value)
    if len(text) <= LABEL_CHARACTERS:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARACTERS]
    return f"{text[: LABEL_CHARACTERS - HASH_CHARACTERS - 1]}~{digest}"


def histogram(name: str, counters: Mapping[str, Mapping[str, int]], stored: str) -> Metric:
    """Make a histogram family from stored counters, with one histogram per cluster."""
    family = HistogramMetricFamily(name, HELP[name], labels=("cluster",))
    for cluster, counts in counters.items():
        limits, total_s = buckets(stored, counts)
        family.add_metric((cluster,), limits, total_s)
    return family


def named(counters: Mapping[str, Mapping[str, int]], kind: str, parts: int) -> Iterator[Series]:
    """Yield the stored counters `<kind>:<part>[:<part>]`: per cluster, the `NAMES_A_COUNTER` largest."""
    for cluster, counts in counters.items():
        chosen = [(name.split(":", parts), value) for name, value in counts.items() if name.startswith(f"{kind}:")]
        chosen.sort(key=lambda item: item[1], reverse=True)
        for (_, *labels), value in chosen[:NAMES_A_COUNTER]:
            yield Series((cluster, *labels), value)


def summed(counters: Mapping[str, Mapping[str, int]], chosen: Callable[[str], bool]) -> Iterator[Series]:
    """Yield the sum of the stored counters with chosen names, by cluster; 0 if there are none yet."""
    for cluster, counts in counters.items():
        yield Series((cluster,), sum(value for name, value in counts.items() if chosen(name)))


def _names(group: Mapping[str, Any]) -> tuple[str, str]:
    return group["cluster"], group["group"]


def _client(group: Mapping[str, Any], member: Mapping[str, Any]) -> tuple[str, ...]:
    return (*_names(group), member["client_id"] or "", member["client_host"] or "")


def _is_refuted(name: str) -> bool:
    return name.startswith("closed:") and name.endswith(":refuted")
