"""Rows through the whole pipeline: parsed, packed, applied by the operator as Spark calls it, stored, served and sent.

Everything is real, except Kafka, Spark's scheduler and the network. A failure is returned, never raised.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pandas as pd
import pyarrow as pa
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from coordinator_model.decode.parse import OFFSETS, REPORTS, RowParser, SourceRow, parse_row
from coordinator_model.group_report import read_outputs
from coordinator_model.shard.shard import ShardSettings
from streaming.config.settings import Settings
from streaming.run import operator as operator_module
from streaming.run import source as source_module
from streaming.run.live_keys import LiveKeys
from streaming.run.operator import Operator
from streaming.run.packing import Routing
from streaming.run.source import TRIGGER_TOPIC, PackRows
from streaming.serve.app import create_app
from streaming.serve.health import Health
from streaming.serve.notify import alertmanager, pagerduty
from streaming.serve.notify.message import MessageEnricher, group_path
from streaming.store import Store
from tests.fuzz.corpus import NONCE, PARTITIONS
from tests.fuzz.values import MARK
from tests.support.memory_cell import MemoryCell

BATCH_CPU_S = 2.0
"""A batch of a case may take so much processor time, and"""
ROW_CPU_S = 0.0005
"""so much more for each of its rows: most cases have some hundred, one with repeated rows has 12,000."""
ANSWER_CPU_S = 2.0
"""The most processor time that an answer of `serve` may take."""
LANES = ("a", "b")
NOT_STORED = ("asked", "commits")
"""Outputs that only the metadata thread and the judging of lag use."""
RECEIVER = "fuzz"
URL_CHARACTERS = 60_000
"""The test client makes no URLs longer than 65,536."""
DOTS = (".", "..")
"""Ids that every client removes from a path, as RFC 3986 (5.2.4) requires."""
_NAMES = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
_TYPES = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary())


@dataclass(frozen=True)
class Plan:
    """How rows become batches; whether a shard is decoded from its state each time; in which order a batch comes.

    ``partitions`` is the number of partitions of the offsets topic: a group's records and lines come to the same shard
    only with the right number.
    """

    batch_ms: int = 5_000
    moves: bool = False
    shuffle: int | None = None
    partitions: int = PARTITIONS


@dataclass
class Outcome:
    """The result of running rows. ``failures`` are things that must never happen."""

    incidents: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    """(group, rule, subject, transition, deadline) of what people were told."""
    failures: list[str] = field(default_factory=list)
    quarantined: Counter[str] = field(default_factory=Counter)
    state_bytes: int = 0

    @contextmanager
    def expecting(self, what: str, within_cpu_s: float) -> Iterator[None]:
        """Note an exception, or that something took too long."""
        started_s = time.process_time()
        try:
            yield
        except Exception as error:  # noqa: BLE001 # any is a failure
            self.failures.append(f"{what}: {type(error).__name__}: {str(error)[:300]}")
            return
        took_s = time.process_time() - started_s
        if took_s > within_cpu_s:
            self.failures.append(f"{what}: took {took_s:.1f} s")


class Pipeline:
    """A database and a `serve`, used by many cases one after the other, each as a cluster of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.settings = Settings.model_validate({
            "store": {"url": f"sqlite:///{folder}/fuzz.db"},
            "serve": {"public_url": "https://monitor.example", "allowed_hosts": ("testserver",)},
            "groups": ({"pattern": ".*a.*|(x+x+)+y", "labels": {"team": "fuzz"}},),
        })  # fmt: skip
        self.store = Store.open(self.settings.store.connection_url())
        self._web = TestClient(create_app(self.store, self.settings, Health(15_000)), follow_redirects=False)
        self._number = 0

    def close(self) -> None:
        """Close the database."""
        self._web.close()
        self.store.close()

    def run(self, rows: Sequence[SourceRow], plan: Plan, *, serve: bool = True) -> Outcome:
        """Send rows through the pipeline, in batches by their instants; the worker starts anew."""
        forget_everything()
        self._number += 1
        cluster = f"case-{self._number}"
        job = _Job(self, cluster, plan, rows)
        for at_ms, batch in _batches(rows, plan):
            job.batch(at_ms, batch)
        if serve:
            self._serve(cluster, job.outcome)
        job.outcome.state_bytes = job.state_bytes()
        return job.outcome

    def _serve(self, cluster: str, outcome: Outcome) -> None:
        """Request everything that shows strangers' names, and build every message."""
        metrics = ""
        with outcome.expecting("metrics", ANSWER_CPU_S):
            metrics = self._get("/metrics").text
        with outcome.expecting("text of metrics", inf):
            _read_metrics(metrics, cluster)
        groups: list[str] = []
        with outcome.expecting("groups", ANSWER_CPU_S):
            groups = [group["group"] for group in self._get(f"/api/v1/groups?cluster={cluster}&limit=200").json()]
        for path in ("/", "/api/v1/incidents?limit=100", "/api/v1/quarantine?limit=50", "/api/v1/openapi.json"):
            with outcome.expecting(path, ANSWER_CPU_S):
                self._get(path)
        for group in groups[:3] + sorted(groups, key=len)[-3:]:
            named = quote(group.encode("utf-8", "replace"), safe="")
            api = f"/api/v1/groups/{named}?cluster={cluster}"
            can_be_asked = group not in DOTS and len(api) < URL_CHARACTERS
            for path in (api,) * can_be_asked + (group_path(cluster, group),):
                with outcome.expecting(path[:60], ANSWER_CPU_S):
                    self._get(path)
        with outcome.expecting("messages", ANSWER_CPU_S * 2):
            self._tell()

    def _get(self, path: str) -> Any:
        answer = self._web.get(path)
        assert answer.status_code in (200, 404), (answer.status_code, answer.text[:200])
        if answer.headers["content-type"].startswith("text/html"):
            assert MARK not in answer.text, "a stranger's text stands in the page as it is"
        return answer

    def _tell(self) -> None:
        """Build what every kind of receiver would be sent."""
        self.store.outbox.fan_out({RECEIVER: ("info", "warn", "page")})
        enricher, now_ms = MessageEnricher(self.store.read, self.settings.serve), time.time_ns() // 1_000_000
        due = self.store.outbox.due(RECEIVER, now_ms, 10_000)
        for delivery in due[:200]:
            payload = enricher.complete(json.loads(delivery.payload))
            for made in (alertmanager.alert(payload, now_ms), pagerduty.event({"routing_key": "k", **payload})):
                assert len(json.dumps(made)) < 512_000
        self.store.outbox.done([delivery.id for delivery in due], now_ms)


class _Job:
    """One run of the job over the rows of a case."""

    def __init__(self, pipeline: Pipeline, cluster: str, plan: Plan, rows: Sequence[SourceRow]) -> None:
        self.outcome = Outcome()
        self._store, self._plan, self._cluster = pipeline.store, plan, cluster
        self._settings = pipeline.settings.model_copy(update={"cluster": cluster})
        offsets_topics = {row.topic for row in rows if row.source == OFFSETS}
        other_topics = {row.topic: REPORTS for row in rows if row.source == REPORTS}
        live_keys = pipeline._folder / "live-keys.json"
        live_keys.unlink(missing_ok=True)
        self._live_keys = LiveKeys(live_keys)
        offsets_topic = min(offsets_topics, default="__consumer_offsets")
        self._pack = PackRows(
            Routing(plan.partitions, lanes=LANES), offsets_topic, live_keys, other_topics, nonce=NONCE
        )
        live_from_ms = min((row.timestamp_ms for row in rows if row.source != OFFSETS), default=0)
        settings = ShardSettings(
            cluster,
            plan.partitions,
            max(0, live_from_ms),
            thresholds=self._settings.default_thresholds(),
            group_thresholds=self._settings.group_thresholds(),
            view_refresh_ms=2_000,
        )
        self._operator = Operator(settings, query=1)
        self._cells: defaultdict[str, MemoryCell] = defaultdict(MemoryCell)
        self._batch_id = 0
        self._reader = RowParser()
        operator_module._held.clear()

    def batch(self, at_ms: int, rows: Sequence[SourceRow]) -> None:
        """Send a batch through the job."""
        limit_s = BATCH_CPU_S + len(rows) * ROW_CPU_S
        with self.outcome.expecting("batch", limit_s):
            packed = self._packed(rows)
            outputs = [output for lane, frame in packed.items() for output in self._operate(lane, frame, at_ms)]
            self._note(outputs)
            result = self._store.apply_batch(
                checkpoint_id=self._cluster,
                batch_id=self._batch_id,
                outputs=read_outputs(outputs),
                settings=self._settings,
            )
            self._live_keys.update({o["key"]: o["groups"] for o in outputs if o["kind"] == "progress"})
            for step in result.transitions:
                incident = step.incident
                told = (incident.group, incident.rule, incident.subject, step.kind.value, incident.deadline_ms)
                self.outcome.incidents[told] += step.kind.value != "updated"
        with self.outcome.expecting("columns", limit_s):
            for row in rows:
                assert self._reader.read(row) == parse_row(row), "a heartbeat was read otherwise than by the parser"
        self._batch_id += 1

    def _packed(self, rows: Sequence[SourceRow]) -> dict[str, pd.DataFrame]:
        """Pack rows as the source stage does, with the trigger row that wakes the shards."""
        rows = [*rows, SourceRow(OFFSETS, TRIGGER_TOPIC, 0, self._batch_id, 0, b"", b"")]
        columns = [pa.array([getattr(r, n) for r in rows], kind) for n, kind in zip(_NAMES, _TYPES, strict=True)]
        made = pa.RecordBatch.from_arrays(columns, names=list(_NAMES))
        frames = [out.to_pandas() for out in self._pack(iter([made]))]
        return dict(iter(pd.concat(frames).groupby("lane"))) if frames else {}

    def _operate(self, lane: str, frame: pd.DataFrame, at_ms: int) -> Iterator[dict[str, Any]]:
        if self._plan.moves:
            operator_module._held.clear()
        cell = self._cells[lane]
        cell.wall_ms = at_ms
        for told in self._operator((lane,), iter([frame]), cell):
            for key, text in zip(told["key"], told["outputs"], strict=True):
                yield from (output | {"key": key} for output in json.loads(text) if output["kind"] not in NOT_STORED)

    def _note(self, outputs: Sequence[dict[str, Any]]) -> None:
        for output in outputs:
            if output["kind"] == "quarantine":
                self.outcome.quarantined[f"{output['source']}: {output['reason']}"] += 1
                if output["reason"].startswith("failed"):
                    self.outcome.failures.append(f"{output['source']} {output['reason']}: {output['detail']}")
            if output["kind"] == "quarantined":
                self.outcome.quarantined.update({k.replace(":", ": ", 1): n for k, n in output["counts"].items()})

    def state_bytes(self) -> int:
        """Return the size of the state."""
        return sum(len(text) for cell in self._cells.values() if cell.exists for text in cell.get[2:])


def _batches(rows: Sequence[SourceRow], plan: Plan) -> Iterator[tuple[int, list[SourceRow]]]:
    """Cut rows into batches, each with the wall clock at its end. Their order decides, not their own instants."""
    chance = None if plan.shuffle is None else Random(plan.shuffle)
    batch: list[SourceRow] = []
    end_ms: int | None = None
    for row in rows:
        at_ms = row.timestamp_ms
        if end_ms is None:
            end_ms = at_ms + plan.batch_ms
        if end_ms <= at_ms < end_ms + 3_600_000:
            yield end_ms, _in_order(batch, chance)
            batch = []
            end_ms += plan.batch_ms * ((at_ms - end_ms) // plan.batch_ms + 1)
        batch.append(row)
    if end_ms is not None:
        yield end_ms, _in_order(batch, chance)
        for _ in range(3):  # time goes on without rows
            end_ms += plan.batch_ms
            yield end_ms, []


def _in_order(batch: list[SourceRow], chance: Random | None) -> list[SourceRow]:
    """Return rows as Spark reads them: partition by partition, each in its order."""
    partitions = sorted({(row.topic, row.partition) for row in batch})
    if chance is not None:
        chance.shuffle(partitions)
    return [row for place in partitions for row in batch if (row.topic, row.partition) == place]


def _read_metrics(text: str, cluster: str) -> None:
    """Parse a cluster's samples, and those without one, as Prometheus would; other cases have parsed their own."""
    own, others = f'cluster="{cluster}"', 'cluster="'
    kept = [line for line in text.split("\n") if own in line or others not in line]
    for family in text_string_to_metric_families("\n".join(kept)):
        assert all(len(value) < 2_000 for sample in family.samples for value in sample.labels.values())


def forget_everything() -> None:
    """Let the worker of the next case start anew."""
    source_module._known.clear()
    operator_module._held.clear()
