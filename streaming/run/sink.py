"""The end of the job: one Spark action and one SQL transaction per batch; the groups' lags are added here."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordinator_model.group_report import read_outputs, reports_in
from coordinator_model.thresholds import Thresholds
from streaming import json_text
from streaming.config.settings import Settings
from streaming.run.catch_up import CatchUp
from streaming.run.cluster_facts import TopicNames
from streaming.run.cluster_watch import ClusterWatch
from streaming.run.lag.group_lags import GroupLags
from streaming.run.live_keys import LiveKeys
from streaming.run.replaced_file import sync
from streaming.run.spark_offsets import planned
from streaming.run.worker import without_collections
from streaming.store import Store
from streaming.store.lease import Lease

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LAST_BATCH_S = 10.0


@dataclass
class Sink:
    """The function that `foreachBatch` calls. The job keeps `caught_up` and `batch_ms` current."""

    store: Store
    settings: Settings
    checkpoint_id: str
    late_before_ms: int
    live_keys: LiveKeys
    topic_names: TopicNames
    watch: ClusterWatch
    lease: Lease
    lags: GroupLags
    catch_up: CatchUp
    checkpoint: Path
    caught_up: bool = False
    batch_ms: int | None = None
    failure: Exception | None = None
    """Why the last batch failed: Spark reports it to the job only as text."""
    _at_work: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    def close(self) -> bool:
        """Wait a while for the current batch to end, and accept no other; the query must be stopped after this.

        Returns whether no batch is running.
        """
        finished = self._at_work.acquire(timeout=LAST_BATCH_S)
        self._closed = True
        if finished:
            self._at_work.release()
        return finished

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        """Apply a batch; an exception is kept in `failure` and raised."""
        with self._at_work:
            if self._closed:
                raise RuntimeError("the query is being stopped")
            try:
                with without_collections():
                    self._apply(frame, batch_id)
            except Exception as error:
                self.failure = error
                raise

    def _apply(self, frame: "DataFrame", batch_id: int) -> None:
        """Apply a batch: one action to collect the rows, then one transaction of the store."""
        # Spark does not sync it. If a power cut took it after our commit, other rows would come under the same number.
        sync(self.checkpoint / "offsets" / str(batch_id))
        said = [(row.key, output) for row in frame.collect() for output in json_text.loads(row.outputs)]
        said = [(key, output) for key, output in said if not self._of_metadata(output)]
        outputs = read_outputs(output for _, output in said)
        self.topic_names.resolve(reports_in(outputs))
        catches_up = not self.caught_up and self.catch_up.is_reached(planned(self.checkpoint, batch_id))
        if catches_up:  # the job learns this from Spark only after the batch has ended
            self.lags.read_first(self.catch_up.asked_ms)
        self.store.apply_batch(
            checkpoint_id=self.checkpoint_id,
            batch_id=batch_id,
            outputs=self.lags.apply(batch_id, outputs, self._thresholds(), judge=self.caught_up or catches_up),
            settings=self.settings,
            caught_up=self.caught_up,
            late_before_ms=self.late_before_ms,
            batch_ms=self.batch_ms,
            lease=self.lease,
        )
        self.live_keys.update({key: output["groups"] for key, output in said if output["kind"] == "progress"})

    def _thresholds(self) -> Callable[[str], Thresholds]:
        """Return a function that returns the thresholds of a group; the settings are read only once for all groups."""
        default, of_groups = self.settings.default_thresholds(), self.settings.group_thresholds()
        return lambda group: of_groups(group) or default

    def _of_metadata(self, output: Mapping[str, Any]) -> bool:
        """Pass on to the watch what concerns leaders; return whether the output is about nothing else."""
        if output["kind"] == "progress" and output["counts"].get("disputed"):
            self.watch.doubt()
        if output["kind"] != "asked":
            return False
        for asked, key in output["keys"].items():
            self.watch.heard(asked, key)
        return True
