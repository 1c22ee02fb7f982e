"""Start the query (source, operator, sink), watch it, and restart it when that helps.

A query is restarted in the running session when topics or partitions appear (the reader is assigned its partitions
explicitly), and after a failure. The job waits for brokers, the database or the disk if one of them caused the failure.
If repeated failures say that the checkpoint cannot be read, it is kept aside and a fresh one begins where the database
ends. If failures without an outside cause go on, the job ends.
"""

import gc
import threading
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from kafka.errors import KafkaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.state import GroupStateTimeout
from sqlalchemy.exc import SQLAlchemyError

from coordinator_model.shard import snapshot
from coordinator_model.shard.shard import ShardSettings
from streaming.client_metrics.otlp import read_metrics
from streaming.config.settings import Settings
from streaming.config.telemetry_zone import zone_named
from streaming.connection import diagnose
from streaming.run import read_ahead
from streaming.run.catch_up import CatchUp
from streaming.run.cluster_changes import ClusterChanges
from streaming.run.cluster_facts import TopicNames, ask_topic_names
from streaming.run.cluster_file import CLUSTER_FILE, ClusterFile
from streaming.run.cluster_watch import ClusterWatch
from streaming.run.errors import RunError
from streaming.run.every import Every
from streaming.run.failures import failure_of
from streaming.run.known_partitions import PARTITIONS_FILE, KnownPartitions
from streaming.run.lag.end_offsets import EndOffsets
from streaming.run.lag.group_lags import GroupLags
from streaming.run.lag.kept import BrokenError, committed_batch
from streaming.run.lanes import lane_names
from streaming.run.layout import (
    Checkpoint,
    Layout,
    locked,
    open_checkpoint,
    remembered_shuffle_partitions,
    retire_checkpoint,
)
from streaming.run.live_keys import LIVE_KEYS_FILE, LiveKeys
from streaming.run.operator import OUTPUT_SCHEMA, STATE_SCHEMA, Operator
from streaming.run.packing import Routing
from streaming.run.probe import NONCE_FILE, Probe, remembered_nonce
from streaming.run.read_ahead import ReadAhead
from streaming.run.session import JVM_SILENT, Spark, cores
from streaming.run.sink import Sink
from streaming.run.source import PACKED_SCHEMA, PackRows, source_rows
from streaming.run.spark_offsets import read_all_from_ms, topics_read
from streaming.run.topic_ids import TOPIC_IDS_FILE, TopicIds
from streaming.run.topics import Assigned, Existing, Offsets, Topics
from streaming.store import Store, StoreError
from streaming.store.batch import CheckpointMismatchError
from streaming.store.lease import Lease, LeaseHeldError
from streaming.store.store import NEVER_LATE_MS

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

log = structlog.get_logger(__name__)

TELEMETRY_BEFORE_MS = 120_000  # how far back a fresh checkpoint reads telemetry: two probes at any usual interval
MISDATED_MS = 60_000  # a telemetry record that lies further ahead of this machine's clock does not tell the time
LOOK_FOR_TOPICS_S = 5.0
LAG_FOLDER = "lag"
QUERY_VERSION = 5  # increase it when the query's sources or its stateful stage change
READ_FACTS_S = 60.0  # how soon a changed session timeout of a group, or a topic that has grown, is noticed
MAX_FIRST_PARTITIONS = 20_000
"""The most partitions whose end offsets are requested before the first batch, when the topics in use are unknown."""
STATUS_BATCHES = 100
RETIRE_AFTER = 3  # failures in a row that say that the checkpoint cannot be read
GIVE_UP_AFTER = 8
BACKOFF_MAX_S = 30.0


def run_job(
    settings: Settings,
    stop: threading.Event,
    on_batch: Callable[[Mapping[str, Any]], None] = lambda _: None,
    reload: Callable[[Settings], Settings | None] = lambda _: None,
    on_catch_up: Callable[[CatchUp], None] = lambda _: None,
) -> None:
    """Run until `stop` is set; raises `RunError` with a reason if it cannot start or continue.

    `on_batch` gets Spark's progress of each batch that ends. `reload` is called often, with the current settings; it
    returns new ones, to be used on the same checkpoint, or None. `on_catch_up` is called after each batch until the job
    has caught up, with how much is left of what the topics contained at the start.
    """
    run = settings.run
    with ExitStack() as stack:
        stack.enter_context(locked(run.data_folder))
        remembered = remembered_shuffle_partitions(run.data_folder)
        shuffle_partitions = run.shuffle_partitions or remembered or cores(run.master)
        reached = _reach(settings, stop)
        if reached is None:
            return
        topics = stack.enter_context(reached)
        try:
            store = Store.open(settings.store.connection_url())
        except StoreError as error:
            raise RunError(str(error)) from error
        stack.callback(store.close)
        lease = Lease(store.engine, settings.cluster)
        if not _acquired(store, lease, stop, standby=run.standby):
            return
        stack.enter_context(lease.kept())
        spark = Spark(run, shuffle_partitions)
        stack.callback(spark.stop)
        nonce = remembered_nonce(run.data_folder / NONCE_FILE)
        probe = stack.enter_context(Probe(settings.kafka.python_client(), nonce=nonce))
        job = Job(
            settings,
            stop,
            topics=topics,
            probe=probe,
            store=store,
            lease=lease,
            spark=spark,
            shuffle_partitions=shuffle_partitions,
            on_batch=on_batch,
            reload=reload,
            on_catch_up=on_catch_up,
        )
        job.run()


@dataclass
class Job:
    """One cluster's query with its restarts, as long as this process runs."""

    settings: Settings
    stop: threading.Event
    _: KW_ONLY
    topics: Topics
    probe: Probe
    store: Store
    lease: Lease
    spark: Spark
    shuffle_partitions: int
    on_batch: Callable[[Mapping[str, Any]], None]
    reload: Callable[[Settings], Settings | None]
    on_catch_up: Callable[[CatchUp], None]
    failures: int = 0
    unexplained: int = 0
    unreadable: int = 0
    """They count failures in a row, without a finished batch between them: all, those without an outside cause, and
    those that say that the checkpoint cannot be read."""

    def __post_init__(self) -> None:
        self._started_ms = time.time_ns() // 1_000_000
        self._checkpoint: Checkpoint | None = None
        self._late_before_ms = NEVER_LATE_MS
        self._is_caught_up = False
        """Whether the last query had caught up when it was stopped for a restart: the next one then starts as such."""
        known = KnownPartitions(self.settings.run.data_folder / PARTITIONS_FILE)
        self._changes = ClusterChanges(self.settings.kafka, self.topics, known)
        self._topic_names = TopicNames(partial(ask_topic_names, self.settings.kafka.python_client()))

    def run(self) -> None:
        """Run the query and restart it, until told to stop or until that no longer helps."""
        while not self.stop.is_set():
            try:
                existing = self._await_topics()
                if existing is None:
                    return
                self._run_query(*existing)
            except (KafkaError, PySparkException, Py4JJavaError, SQLAlchemyError) as error:
                self._failed(error)
            except JVM_SILENT as error:
                if (status := self.spark.exit_status()) is not None:
                    told = f"Spark's JVM has ended (exit status {status}), so run ends too"
                    raise RunError(f"{told}. Start run again: it continues from its checkpoint") from error
                self._failed(error)
            except OSError as error:
                self._failed(error)

    def _await_topics(self) -> Existing | None:
        """Return the topics that exist, once the offsets topic is among them; return None when told to stop."""
        kafka, told = self.settings.kafka, False
        while not self.stop.is_set():
            existing = self.topics.existing(kafka.topics)
            if kafka.offsets_topic in existing.assigned:
                for missing in set(kafka.topics) - existing.assigned.keys():
                    log.warning("topic does not exist yet or may not be described, going on without it", topic=missing)
                return existing
            if not told:
                log.warning("offsets topic does not exist yet: no group was ever used", topic=kafka.offsets_topic)
                told = True
            self.stop.wait(LOOK_FOR_TOPICS_S)
        return None

    def _run_query(self, assigned: Assigned, ids: Mapping[str, str]) -> None:
        """Run the query until it has to be restarted; first without the topics that were recreated or cut short."""
        watched_before = self._judged_until_ms() is not None
        kafka = self.settings.kafka
        because = ("the offsets topic was cut short",) if kafka.offsets_topic in self._changes.cut_short else ()
        layout = self._layout(assigned, ids.get(kafka.offsets_topic, ""))
        checkpoint, lags = self._open(layout, because)
        self._checkpoint = checkpoint
        self._late_before_ms = self._started_ms if checkpoint.resumed or watched_before else NEVER_LATE_MS
        _tell(checkpoint)
        with lags:
            self._run_on(checkpoint, lags, assigned, ids)

    def _open(self, layout: Layout, because: tuple[str, ...]) -> tuple[Checkpoint, GroupLags]:
        """Return the checkpoint to use, and the commits kept with it; a fresh checkpoint if they are damaged."""
        cluster, folder = self.settings.cluster, self.settings.run.data_folder
        checkpoint = open_checkpoint(folder, layout, self._live_from_ms, because)
        try:
            return checkpoint, GroupLags(cluster, checkpoint.folder / LAG_FOLDER, committed_batch(checkpoint.folder))
        except BrokenError as broken:
            checkpoint = open_checkpoint(folder, layout, self._live_from_ms, (f"what was kept of commits: {broken}",))
            return checkpoint, GroupLags(cluster, checkpoint.folder / LAG_FOLDER)

    def _run_on(self, checkpoint: Checkpoint, lags: GroupLags, assigned: Assigned, ids: Mapping[str, str]) -> None:
        """Run the query on a checkpoint."""
        kafka = self.settings.kafka
        known_ids = TopicIds(checkpoint.folder / TOPIC_IDS_FILE)
        again = known_ids.others(ids) | self._changes.cut_short
        begun = again - {kafka.offsets_topic} if checkpoint.resumed else set()
        self._changes.start_from(ids)
        if begun:
            log.warning("topics were recreated or cut short, reading them again from their start", topics=sorted(begun))
            others = {name: numbers for name, numbers in assigned.items() if name not in begun}
            if not self._go_on(others, checkpoint, lags, forget=begun):
                return
        known_ids.keep(ids)
        self._go_on(assigned, checkpoint, lags)

    def _go_on(
        self, assigned: Assigned, checkpoint: Checkpoint, lags: GroupLags, forget: AbstractSet[str] = frozenset()
    ) -> bool:
        """Run the query on its checkpoint; return whether it ended because its offsets have dropped `forget`."""
        kafka, file = self.settings.kafka, ClusterFile(checkpoint.folder / CLUSTER_FILE)
        watch = ClusterWatch(kafka.python_client(), kafka.offsets_topic, self.probe.nonce, file.write, file.keys())
        end_offsets = EndOffsets(
            kafka.python_client(),
            lags.topics,
            suspects=lags.suspects,
            behind_ms=lags.clocks.behind_ms,
            take=lags.add_round,
            kept=lags.known_round(),
        )
        self._ask_first(end_offsets, lags)
        asked_ms = time.time_ns() // 1_000_000
        is_caught_up = self._is_caught_up and checkpoint.resumed
        self._is_caught_up = False  # after a failure there may be much to read
        if not is_caught_up:
            self.store.note_start(self.lease)
        catch_up = CatchUp(self.topics.ends(assigned), done=is_caught_up, asked_ms=asked_ms)
        sink = Sink(
            self.store,
            self.settings,
            checkpoint.checkpoint_id,
            late_before_ms=self._late_before_ms,
            live_keys=LiveKeys(checkpoint.folder / LIVE_KEYS_FILE),
            topic_names=self._topic_names,
            watch=watch,
            lease=self.lease,
            lags=lags,
            catch_up=catch_up,
            checkpoint=checkpoint.folder,
            caught_up=is_caught_up,
        )
        query = self._start(assigned, checkpoint, sink)
        try:
            with watch, end_offsets:
                has_forgotten = self._watch(query, sink, catch_up, assigned, forget)
            self._is_caught_up = catch_up.done
            return has_forgotten
        finally:
            if not sink.close():
                lags.abandon()
            query.stop()

    def _ask_first(self, end_offsets: EndOffsets, lags: GroupLags) -> None:
        """Ask for the end offsets of all topics if no lags are kept, so that lags are known with the first batch.

        The end offsets of the topics that the job reads are requested after this. So a job that has read up to those
        has read all commits made before this request.
        """
        if lags.topics():
            return
        counts = self.topics.partition_counts()
        if 0 < sum(counts.values()) <= MAX_FIRST_PARTITIONS:
            end_offsets.ask_first(counts, lags.add_first_round)

    def _start(self, assigned: Assigned, checkpoint: Checkpoint, sink: Sink) -> "StreamingQuery":
        settings, run = self.settings, self.settings.run
        starts = self.topics.starts(
            settings.kafka.offsets_topic, assigned, checkpoint.live_from_ms - TELEMETRY_BEFORE_MS
        )
        partitions = len(assigned[settings.kafka.offsets_topic])
        routing = Routing(partitions, run.operator_key, run.shard_split)
        live_keys_file = checkpoint.folder.absolute() / LIVE_KEYS_FILE
        cluster_file = checkpoint.folder.absolute() / CLUSTER_FILE
        pack = PackRows(
            routing,
            settings.kafka.offsets_topic,
            live_keys_file,
            settings.kafka.other_topics,
            cluster_file,
            self.probe.nonce,
            zone_named(settings.kafka.telemetry_zone),
            read_metrics,
            checkpoint.live_from_ms,
            checkpoint.live_from_ms - max(TELEMETRY_BEFORE_MS, settings.history_ms()),
        )
        shard_settings = self._shard_settings(partitions, checkpoint.live_from_ms)
        pack = self._start_spark(checkpoint, assigned, pack)
        operator = Operator(shard_settings, read_ahead=self._read_ahead(checkpoint, starts))
        return (
            source_rows(self.spark.session, settings.kafka, assigned, starts)
            .mapInArrow(pack, PACKED_SCHEMA)
            .groupBy("lane")
            .applyInPandasWithState(operator, OUTPUT_SCHEMA, STATE_SCHEMA, "append", GroupStateTimeout.NoTimeout)
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(checkpoint.folder.absolute()))
            .trigger(processingTime=f"{run.trigger_ms} milliseconds")
            .start()
        )

    def _start_spark(self, checkpoint: Checkpoint, assigned: Assigned, pack: PackRows) -> PackRows:
        """Start Spark if necessary, and read ahead meanwhile for a fresh checkpoint; return `pack` with lanes."""
        kafka, starts_now = self.settings.kafka, not self.spark.is_started
        is_useful = starts_now and not checkpoint.resumed and pack.routing.operator_key == "shard"
        partitions = assigned[kafka.offsets_topic] if is_useful else ()
        with ReadAhead(kafka.librdkafka_client(), kafka.offsets_topic, partitions, pack) as reading:
            lanes = lane_names(self.spark.session, self.shuffle_partitions)
        routing = replace(pack.routing, lanes=lanes)
        reading.keep(checkpoint.folder, routing)
        if starts_now:
            gc.freeze()  # what is loaded stays: the rows of each batch trigger collections, which would scan it again
        return replace(pack, routing=routing)

    def _read_ahead(self, checkpoint: Checkpoint, starts: Offsets) -> Path | None:
        """Return the folder of what was read ahead for the first batch, and let Spark begin after it, or None."""
        if checkpoint.committed:
            read_ahead.discard(checkpoint.folder)
        following = read_ahead.next_offsets(checkpoint.folder)
        starts[self.settings.kafka.offsets_topic] |= following
        return checkpoint.folder.absolute() / read_ahead.FOLDER if following else None

    def _watch(
        self, query: "StreamingQuery", sink: Sink, catch_up: CatchUp, assigned: Assigned, forget: AbstractSet[str]
    ) -> bool:
        """Return when told to stop or when the query has to be restarted; raise the error that ended it.

        False: told to stop, or there are new partitions to read, new settings, or topics that were recreated or cut
        short. True: a batch has ended whose offsets no longer contain the topics to forget.
        """
        topics_due, facts_due, changes = Every(LOOK_FOR_TOPICS_S), Every(READ_FACTS_S), self._changes
        seen, silent = -1, self.probe.silent()
        while not self.stop.wait(0.1):
            if (now_silent := self.probe.silent()) != silent:
                silent = now_silent
                sink.watch.doubt()  # a broker is gone or back, so leaders change
            self._raise_what_ended(query, sink)
            if (settings := self.reload(self.settings)) is not None:
                self.settings = settings
                return False
            progress, now_s = query.lastProgress, time.monotonic()
            if progress is not None and progress["batchId"] > seen:
                seen = progress["batchId"]
                self._batch_ended(progress, sink, catch_up)
                if forget and forget.isdisjoint(topics_read(progress)):
                    return True
            if topics_due(now_s) and changes.reading_changes(assigned, forget, progress):
                return False
            if facts_due(now_s) and changes.facts_changed(sink.lags.topics(), sink.lags.topics_partly_owned()):
                return False
        return False

    def _raise_what_ended(self, query: "StreamingQuery", sink: Sink) -> None:
        """Raise the error that ended the query, or `RunError` if this process lost its lease on the cluster."""
        if self.lease.lost is not None:
            raise RunError(str(self.lease.lost))
        if (failure := query.exception()) is not None:
            raise failure from sink.failure

    def _batch_ended(self, progress: Any, sink: Sink, catch_up: CatchUp) -> None:
        self.failures = self.unexplained = self.unreadable = 0
        sink.batch_ms = progress["durationMs"].get("triggerExecution")
        if (line := catch_up.update(progress)) is not None:
            log.info(line)
            self.on_catch_up(catch_up)
        sink.caught_up = catch_up.done
        if (began_ms := read_all_from_ms(progress)) is not None:
            sink.lags.read_until(began_ms)
        if progress["batchId"] % STATUS_BATCHES == 0:
            log.info("at work", batch=progress["batchId"], rows=progress["numInputRows"], batch_ms=sink.batch_ms)
        self.on_batch(progress)

    def _failed(self, error: BaseException) -> None:
        """Wait before the next attempt; raises `RunError` if none would help."""
        if self.lease.lost is not None:
            raise RunError(str(self.lease.lost))
        self.topics.close()
        self.failures += 1
        failure = failure_of(error, self.settings.run.data_folder)
        wait_s = min(BACKOFF_MAX_S, 2.0 ** (self.failures - 1))
        if isinstance(error.__cause__, CheckpointMismatchError):
            self._retire_checkpoint(str(error.__cause__))
        elif failure.advice is not None:
            log.error("the query failed, trying again", reason=failure.reason, advice=failure.advice, wait_s=wait_s)
        else:
            self.unexplained += 1
            self.unreadable += failure.unreadable
            log.error("the query failed, trying again", reason=failure.reason, wait_s=wait_s)
            self._doubt(failure.reason)
        self.stop.wait(wait_s)

    def _doubt(self, reason: str) -> None:
        """Set a checkpoint aside that repeatedly cannot be read. Raises `RunError` if only a new process can help."""
        if self.spark.has_stopped():
            raise RunError(f"Spark has stopped: {reason}. Start run again: it continues from its checkpoint")
        if self.unexplained >= GIVE_UP_AFTER:
            folder = self.settings.run.data_folder.absolute()
            hint = f"if this continues, move {folder} away: run then starts afresh, and open incidents stay"
            raise RunError(f"the query failed {self.unexplained} times without finishing a batch: {reason}; {hint}")
        if self.unreadable >= RETIRE_AFTER and self._checkpoint is not None and self._checkpoint.committed:
            self._retire_checkpoint(reason)

    def _retire_checkpoint(self, reason: str) -> None:
        retire_checkpoint(self.settings.run.data_folder)
        kept = self._checkpoint and str(self._checkpoint.folder.absolute())
        log.error("the checkpoint cannot be used and is kept aside, a fresh one begins", kept=kept, reason=reason)

    def _layout(self, assigned: Assigned, offsets_topic_id: str) -> Layout:
        run = self.settings.run
        return Layout(
            cluster=self.settings.cluster,
            offsets_topic=self.settings.kafka.offsets_topic,
            offsets_partitions=len(assigned[self.settings.kafka.offsets_topic]),
            operator_key=run.operator_key,
            shard_split=run.shard_split,
            shuffle_partitions=self.shuffle_partitions,
            state_version=snapshot.VERSION,
            query_version=QUERY_VERSION,
            offsets_topic_id=offsets_topic_id,
        )

    def _live_from_ms(self) -> int:
        """Return when watching begins: where the checkpoint before this one ended; without one, now.

        "Now" is the time of the newest telemetry record. Without one, or if it is misdated, it is the time of this
        machine's clock. Nothing that happened before is raised as an incident.
        """
        now_ms = time.time_ns() // 1_000_000
        newest_ms = self.topics.newest_ms(self.settings.kafka.telemetry_topics)
        if newest_ms is not None and newest_ms <= now_ms + MISDATED_MS:
            now_ms = newest_ms
        elif newest_ms is not None:
            what = "the newest telemetry record lies in the future: its sender's clock is wrong, or this machine's"
            log.warning(what, ahead_s=(newest_ms - now_ms) / 1_000)
        judged_ms = self._judged_until_ms()
        return now_ms if judged_ms is None else min(now_ms, judged_ms)

    def _judged_until_ms(self) -> int | None:
        return self.store.read.judged_until_ms(self.settings.cluster)

    def _shard_settings(self, partitions: int, live_from_ms: int) -> ShardSettings:
        self._changes.read_facts()
        timeouts = self._changes.session_timeouts
        return ShardSettings(
            cluster=self.settings.cluster,
            partitions=partitions,
            live_from_ms=live_from_ms,
            thresholds=self.settings.default_thresholds(),
            group_thresholds=self.settings.group_thresholds(),
            consumer_session_timeouts_ms=timeouts.consumer,
            share_session_timeouts_ms=timeouts.share,
            streams_session_timeouts_ms=timeouts.streams,
            topic_partitions=self._changes.partition_counts,
            added_partitions=self._changes.added_partitions,
            view_refresh_ms=self.settings.run.view_refresh_ms,
        )


def _acquired(store: Store, lease: Lease, stop: threading.Event, *, standby: bool) -> bool:
    """Acquire the lease on the cluster; return False if told to stop first."""
    try:
        if not lease.acquire(stop, standby=standby):
            return False
        store.note_start(lease)
    except LeaseHeldError as error:
        raise RunError(str(error)) from None
    except SQLAlchemyError as error:
        raise RunError(f"the database cannot be used: {getattr(error, 'orig', None) or error}") from error
    return True


def _reach(settings: Settings, stop: threading.Event) -> Topics | None:
    """Connect; wait for brokers that are not up yet, but not if the problem would not go away by itself.

    Returns None if told to stop first.
    """
    problem = ""
    for attempt in range(GIVE_UP_AFTER):
        if stop.wait(LOOK_FOR_TOPICS_S if attempt else 0):
            return None
        found = diagnose(settings.kafka, topics=[settings.kafka.offsets_topic])
        if found is None:
            return Topics(settings.kafka.python_client())
        problem = str(found)
        if not found.transient:
            break
        log.warning("no broker can be used, trying again", problem=problem)
    raise RunError(problem)


def _tell(checkpoint: Checkpoint) -> None:
    name, begins_ms = checkpoint.checkpoint_id, checkpoint.live_from_ms
    if checkpoint.changes:
        log.warning("the old checkpoint does not fit and is kept aside; a fresh one begins", because=checkpoint.changes)
    log.info("going on" if checkpoint.resumed else "fresh checkpoint", checkpoint=name, live_from_ms=begins_ms)
