"""Replays a whole capture through the model: what ``group-monitor replay`` prints. No Kafka, no Spark.

It uses the same ``Shard`` as the live run, in one batch. The number of partitions is inferred from the partitions in
which the records are. The replay is live from the first telemetry line, and the end of the capture opens no incident.
"""

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from coordinator_model.added_partitions import AddedPartitions, added_partitions
from coordinator_model.brokers.blindness import blind_windows
from coordinator_model.brokers.line_clocks import written_ms
from coordinator_model.brokers.ticks import Ticker
from coordinator_model.decode.cluster_row import GROUP_KINDS, ClusterRow, read_cluster_row
from coordinator_model.decode.parse import OFFSETS, TELEMETRY, RejectedRow, RowParser, SourceRow, mute_line
from coordinator_model.decode.source_row import CLUSTER
from coordinator_model.decode.telemetry.fields import BadField
from coordinator_model.decode.telemetry.pushed_metrics import MetricsReader, unread
from coordinator_model.decode.telemetry.shipped import Zone, utc
from coordinator_model.events import (
    FAR_MS,
    BrokerLine,
    ClientPoll,
    ClientSeen,
    ClientWord,
    CommitRefused,
    ConsumerHeartbeat,
    CoordinatorLine,
    Event,
    Heartbeat,
    JoinAnswered,
    LeaderNamed,
    LeaveAnswered,
    MetricsExported,
    MetricsPushed,
    OffsetCommitted,
    RecordRead,
    SyncAnswered,
    Tick,
)
from coordinator_model.group_report import Said, of_kind, read_outputs, reports_in
from coordinator_model.incidents import Kind, Transition, fold, in_order
from coordinator_model.lag_tracker import LagTracker, redated, track
from coordinator_model.recreated import Place, begins_again_ms
from coordinator_model.shard.shard import Shard, ShardSettings
from coordinator_model.shard.sharding import DEFAULT_PARTITIONS, infer_partitions, shard_of
from coordinator_model.shard.topic_places import name_topics

RECREATED = " (recreated)"
"""Added to a topic's name each time that the topic was recreated. No topic's name can contain it."""
MAX_RECREATED = 100
"""How many times a partition may be recreated in one capture. After that, repeated offsets count as duplicates."""
FUTURE_MS = 3_600_000
"""A record that is later than all others by more than this was dated by a wrong clock."""
COMMIT_FROM_THE_FUTURE = "offsets: commit from the future"
_WITHOUT_CLOCK = (RecordRead, OffsetCommitted, ClientWord, LeaderNamed, CoordinatorLine)
"""Events that do not move any broker's clock."""


@dataclass(slots=True)
class History:
    """The result of a replay: transitions by coordinator time, the groups at the end, and counts."""

    transitions: list[Transition]
    groups: list[dict[str, Any]]
    rows: int
    decoded: Counter[str]
    undecodable: Counter[str]
    coverage: dict[str, Any]
    blind: list[dict[str, Any]]
    """When lines of a broker are missing: ``broker``, ``from_ms``, ``until_ms`` and ``why``."""
    partitions: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The newest judgement of each group's lag, where the capture has end offsets."""


@dataclass(slots=True)
class _Reading:
    rows: int = 0
    events: list[Event] = field(default_factory=list)
    mute: list[Tick] = field(default_factory=list)
    """Ticks for lines of brokers that cannot be read or are not about a group."""
    placements: set[tuple[str, int]] = field(default_factory=set)
    decoded: Counter[str] = field(default_factory=Counter)
    undecodable: Counter[str] = field(default_factory=Counter)
    places: dict[tuple[str, int], dict[int, Place]] = field(default_factory=lambda: defaultdict(dict))
    """The place of each row, by topic and partition, then offset. The writer of a line is its broker."""
    again: dict[tuple[str, int], list[SourceRow]] = field(default_factory=lambda: defaultdict(list))
    """Rows whose place is already taken by a row with another instant."""
    recreated: set[tuple[str, int]] = field(default_factory=set)
    """Partitions, under their later names, that were recreated or truncated."""
    cluster: list[ClusterRow] = field(default_factory=list)


def replay_rows(
    rows: Iterable[SourceRow], settings: ShardSettings, zone: Zone = utc, read_metrics: MetricsReader = unread
) -> History:
    """Replay the rows of a capture, in any order and with duplicates.

    ``settings.partitions`` 0: infer the number; if it cannot be inferred, Kafka's default is used and reported as None.
    ``settings.live_from_ms`` is set to the first telemetry line. ``zone`` is the time zone of the dates in shipped
    lines. ``read_metrics`` reads the metrics that clients push.
    """
    reading = _read(rows, zone, read_metrics)
    lines = [event for event in reading.events if not isinstance(event, _WITHOUT_CLOCK)]
    logged = [event for event in reading.events if isinstance(event, CoordinatorLine)]
    live_from_ms = _live_from_ms(lines or logged, reading)
    settings = _as_captured(replace(settings, live_from_ms=live_from_ms), reading)
    known_partitions = settings.partitions or None
    partitions = known_partitions or DEFAULT_PARTITIONS
    settings = replace(settings, partitions=partitions)
    by_shard = _route(reading.events, partitions)
    ticks = _ticks(lines, _gaps(reading), reading.mute)
    newest_record_ms = _newest_record_ms(reading.events)
    outputs: list[Said] = []
    groups: list[dict[str, Any]] = []
    for number, events in by_shard.items():
        shard = Shard.restore(number, settings, None)
        named = [event for row in reading.cluster if (event := row.named(number)) is not None]
        outputs += read_outputs(shard.apply([*events, *ticks, *named], final=True, newest_record_ms=newest_record_ms))
        groups += shard.views()
    for output in of_kind(outputs, "quarantine"):
        reading.undecodable[f"{output['source']}: {output['reason']}"] += 1
    groups.sort(key=lambda group: str(group["group"]))
    _name_topics(reading, outputs, groups)
    lags = list(_lags(reading, by_shard, ticks, settings))
    outputs += lags
    partitions_told = {output["group"]: output for output in of_kind(lags, "partitions")}
    for group in groups:
        group["lag"] = partitions_told[group["group"]]["lag"] if group["group"] in partitions_told else None
    return History(
        transitions=_transitions(outputs, settings),
        groups=groups,
        rows=reading.rows,
        decoded=reading.decoded,
        undecodable=reading.undecodable,
        coverage=_coverage(lines, logged, known_partitions),
        blind=blind_windows(of_kind(outputs, "blind")),
        partitions=partitions_told,
    )


def _lags(
    reading: _Reading, by_shard: Mapping[int, Sequence[Event]], ticks: Sequence[Tick], settings: ShardSettings
) -> Iterator[Said]:
    """Judge the lag of all groups at each round of end offsets."""
    if any(row.end_offsets for row in reading.cluster):
        views = _Views(reading, by_shard, ticks, settings)
        written = (event for event in reading.events if isinstance(event, OffsetCommitted))
        commits, misdated = redated(written, _end_ms(reading))
        if misdated:
            reading.undecodable[COMMIT_FROM_THE_FUTURE] += misdated
        tracker = LagTracker(settings.cluster, settings.thresholds_of)
        yield from track(tracker, commits, reading.cluster, views.until)


def _end_ms(reading: _Reading) -> int:
    """Return when a capture ends. Its lines decide if it has any, because a record may be dated by a wrong clock."""
    lines_ms = (event.order_ms for event in reading.events if not isinstance(event, _WITHOUT_CLOCK))
    newest_ms = max(lines_ms, default=0) or _newest_record_ms(reading.events)
    return max([newest_ms, *(row.timestamp_ms for row in reading.cluster)])


class _Views:
    """The shards, replayed a second time up to each round, to get the groups' views at that time."""

    def __init__(
        self,
        reading: _Reading,
        by_shard: Mapping[int, Sequence[Event]],
        ticks: Sequence[Tick],
        settings: ShardSettings,
    ) -> None:
        self._reading = reading
        self._shards: list[tuple[Shard, deque[Event]]] = []
        for number, events in by_shard.items():
            named = [event for row in reading.cluster if (event := row.named(number)) is not None]
            in_time = sorted([*events, *ticks, *named], key=lambda event: event[:5])
            self._shards.append((Shard.restore(number, settings, None), deque(in_time)))

    def until(self, at_ms: int) -> list[Said]:
        """Return what the shards say up to an instant."""
        said: list[Said] = []
        for shard, waiting in self._shards:
            events = []
            while waiting and waiting[0].order_ms <= at_ms:
                events.append(waiting.popleft())
            said += read_outputs(shard.apply(events, final=True, newest_record_ms=at_ms))
        _name_topics(self._reading, said, [])
        return in_order(said)


def _live_from_ms(lines: Iterable[BrokerLine | CoordinatorLine], reading: _Reading) -> int:
    """Return the instant from which a capture is live: that of its first line, else its start, else its first record.

    The first cluster row shows when the capture started.
    """
    told = min((event.order_ms for event in lines), default=0)
    begun = told or min((row.timestamp_ms for row in reading.cluster), default=0)
    return begun or min(_record_instants(reading.events), default=FAR_MS)


def _newest_record_ms(events: Iterable[Event]) -> int:
    """Return the newest instant of a record, ignoring records that are much later than all others."""
    instants = sorted(_record_instants(events))
    while len(instants) > 1 and instants[-1] > instants[-2] + FUTURE_MS:
        instants.pop()
    return instants[-1] if instants else 0


def _record_instants(events: Iterable[Event]) -> set[int]:
    return {event.order_ms for event in events if isinstance(event, RecordRead | OffsetCommitted)}


def _name_topics(reading: _Reading, outputs: list[Said], groups: list[dict[str, Any]]) -> None:
    """Replace topic ids by the names in the capture, as `run` does with the names in the brokers' metadata."""
    names = {topic: name for row in reading.cluster for topic, name in row.topic_names.items()}
    for report in reports_in(outputs):
        name_topics(names, report.view, report.findings)
    for view in groups:
        name_topics(names, view)


def _as_captured(settings: ShardSettings, reading: _Reading) -> ShardSettings:
    """Add to the settings what the capture says about its cluster. The newest row counts; a setting overrides it."""
    cluster = sorted(reading.cluster, key=lambda row: row.timestamp_ms)
    told: dict[str, dict[str, int]] = {kind: {} for kind in GROUP_KINDS}
    topic_partitions: dict[str, int] = {}
    added: dict[str, AddedPartitions] = {}
    for row in cluster:
        added |= added_partitions(topic_partitions, row.topic_partitions, row.timestamp_ms)
        topic_partitions |= row.topic_partitions
        for kind, timeouts_ms in row.session_timeouts_ms.items():
            told[kind] |= timeouts_ms
    leaders = next((len(row.leaders) for row in reversed(cluster) if row.leaders), 0)
    return replace(
        settings,
        partitions=settings.partitions or leaders or infer_partitions(reading.placements) or 0,
        consumer_session_timeouts_ms=told["consumer"] | dict(settings.consumer_session_timeouts_ms),
        share_session_timeouts_ms=told["share"] | dict(settings.share_session_timeouts_ms),
        streams_session_timeouts_ms=told["streams"] | dict(settings.streams_session_timeouts_ms),
        topic_partitions=topic_partitions | dict(settings.topic_partitions),
        added_partitions=added | dict(settings.added_partitions),
    )


def _read(rows: Iterable[SourceRow], zone: Zone = utc, read_metrics: MetricsReader = unread) -> _Reading:
    reading, reader = _Reading(), RowParser(zone, read_metrics)
    for row in rows:
        if row.source == CLUSTER:
            _read_cluster(row, reading)
        else:
            _read_row(row, reading, reader)
    while reading.again:
        _begin_again(reading, reader)
    return reading


def _read_row(row: SourceRow, reading: _Reading, reader: RowParser) -> None:
    row = reader.bare(row)
    seen = reading.places[row.topic, row.partition]
    known = seen.get(row.offset)
    if known is not None:
        if known.at_ms != row.timestamp_ms:
            reading.again[row.topic, row.partition].append(row)
        return
    reading.rows += 1
    events = reader.read(row)
    _count(row, events, reading)
    told = [] if isinstance(events, RejectedRow) else events
    broker = getattr(told[0], "broker", "") if told and row.source == TELEMETRY else ""
    seen[row.offset] = Place(row.offset, row.timestamp_ms, broker)
    reading.events += told
    if not told and (tick := mute_line(row)) is not None:
        reading.mute.append(tick)


def _count(row: SourceRow, events: list[Event] | RejectedRow, reading: _Reading) -> None:
    if isinstance(events, RejectedRow):
        reading.undecodable[f"{row.source}: {events.reason.partition(':')[0]}"] += 1
        return
    for event in events:
        reading.decoded[_kind(event)] += 1
        if row.source == OFFSETS:
            reading.placements.add((event[5], row.partition))
    if not events:
        reading.decoded["other"] += 1


def _begin_again(reading: _Reading, reader: RowParser) -> None:
    """Rename recreated partitions, so that their offsets do not collide."""
    found, reading.again = reading.again, defaultdict(list)
    for (topic, partition), rows in found.items():
        seen = reading.places[topic, partition]
        repeated = [Place(row.offset, row.timestamp_ms, row.key_text) for row in rows]
        again_ms = begins_again_ms(seen, repeated) if topic.count(RECREATED) < MAX_RECREATED else None
        if again_ms is None:
            continue  # duplicates whose instants are wrong
        later = f"{topic}{RECREATED}"
        for place in [place for place in seen.values() if place.at_ms >= again_ms]:
            reading.places[later, partition][place.offset] = seen.pop(place.offset)
        renamed = [_renamed(event, (topic, partition), later, again_ms) for event in reading.events]
        reading.events = renamed
        reading.mute = [
            tick._replace(topic=later) if tick[2:4] == (topic, partition) and tick.order_ms >= again_ms else tick
            for tick in reading.mute
        ]
        reading.recreated.add((later, partition))
        for row in rows:
            _read_row(row._replace(topic=later if row.timestamp_ms >= again_ms else topic), reading, reader)


def _renamed(event: Event, place: tuple[str, int], later: str, again_ms: int) -> Event:
    written = event.order_ms if isinstance(event, _WITHOUT_CLOCK) else written_ms(event)
    return event._replace(topic=later) if event[2:4] == place and written >= again_ms else event


def _read_cluster(row: SourceRow, reading: _Reading) -> None:
    reading.rows += 1
    try:
        reading.cluster.append(read_cluster_row(row.value or b""))
        reading.decoded[CLUSTER] += 1
    except BadField as bad:
        reading.undecodable[f"{CLUSTER}: {str(bad).partition(':')[0]}"] += 1


def _kind(event: Event) -> str:
    return f"record-{event.record_type}" if isinstance(event, RecordRead) else _KINDS[type(event)]


_KINDS: dict[type, str] = {
    OffsetCommitted: "offset-commit",
    Heartbeat: "heartbeat",
    JoinAnswered: "join",
    SyncAnswered: "sync",
    LeaveAnswered: "leave",
    ConsumerHeartbeat: "consumer-heartbeat",
    CommitRefused: "commit-refused",
    ClientPoll: "client-poll",
    ClientSeen: "client-seen",
    MetricsPushed: "metrics-pushed",
    MetricsExported: "metrics-exported",
    Tick: "probe",
    CoordinatorLine: "coordinator-log",
}


def _route(events: list[Event], partitions: int) -> dict[int, list[Event]]:
    """Group the events by shard, records by their partition. Ticks go to all shards and are left out here."""
    by_shard: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if isinstance(event, RecordRead | OffsetCommitted):
            by_shard[event.partition].append(event)
        elif isinstance(event, CoordinatorLine) and not event.group:
            by_shard[event.shard].append(event)  # it is about all groups of a partition
        elif not isinstance(event, Tick):
            by_shard[shard_of(event[5], partitions)].append(event)
    return dict(sorted(by_shard.items()))


def _gaps(reading: _Reading) -> set[tuple[str, int, int]]:
    """Return the places (topic, partition, offset) before which offsets of a telemetry partition are missing."""
    gaps = set()
    for (topic, partition), seen in reading.places.items():
        if not any(place.writer for place in seen.values()):
            continue
        ordered = sorted(seen)
        if (topic, partition) in reading.recreated:
            gaps.add((topic, partition, ordered[0]))  # it is not known how much of the former topic was read
        for before, offset in pairwise(ordered):
            if offset != before + 1:
                gaps.add((topic, partition, offset))
    return gaps


def _ticks(lines: list[BrokerLine], gaps: set[tuple[str, int, int]], mute: Iterable[Tick] = ()) -> list[Tick]:
    """Return the ticks for all shards. Missing lines are marked on the next line that moves a clock."""
    ticker, told_by = Ticker(), _first_after(gaps, lines)
    for event in sorted(lines, key=lambda e: (e[0], e[2], e[3], e[4])):
        tick = event if isinstance(event, Tick) else Tick(*event[:5], "", event.broker, None)
        ticker.observe(tick._replace(lost=event[2:5] in told_by))
    for tick in mute:
        ticker.observe(tick, mute=True)
    return ticker.take()


def _first_after(gaps: set[tuple[str, int, int]], lines: list[BrokerLine]) -> set[tuple[str, int, int]]:
    """Return the place of the first line at or after each of these places."""
    offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    for line in lines if gaps else ():
        offsets[line.topic, line.partition].append(line.offset)
    for listed in offsets.values():
        listed.sort()
    found = set()
    for topic, partition, offset in gaps:
        behind = offsets[topic, partition]
        at = bisect_left(behind, offset)
        if at < len(behind):
            found.add((topic, partition, behind[at]))
    return found


def _transitions(outputs: Iterable[Said], settings: ShardSettings) -> list[Transition]:
    """Fold the reports of all shards into transitions, without those that only update a stored incident."""
    transitions, _ = fold(
        {}, reports_in(in_order(outputs)), lambda group: settings.thresholds_of(group).resolve_after_ms
    )
    return sorted((t for t in transitions if t.kind is not Kind.UPDATED), key=lambda t: t.at_ms)


def _coverage(lines: list[BrokerLine], logged: list[CoordinatorLine], partitions: int | None) -> dict[str, Any]:
    """Return which brokers' lines the capture has, and when the first and the last of each were written.

    The coordinator's own log is listed separately: without a request log, a broker that has nothing to log looks like
    one that is down.
    """
    coverage: dict[str, Any] = {"brokers": _spans(lines), "partitions": partitions}
    return coverage | {"coordinator_log": _spans(logged)} if logged else coverage


def _spans(lines: Sequence[BrokerLine | CoordinatorLine]) -> dict[str, dict[str, int]]:
    brokers: dict[str, dict[str, int]] = {}
    for event in lines:
        broker = brokers.setdefault(
            event.broker,
            {"lines": 0, "first_ms": event[0], "last_ms": event[0]},
        )
        broker["lines"] += 1
        broker["first_ms"] = min(broker["first_ms"], event[0])
        broker["last_ms"] = max(broker["last_ms"], event[0])
    return dict(sorted(brokers.items()))
