"""Groups that commit in all the ways that matter for lag, messages that keep coming, and the monitor beside them.

Besides what every `World` leaves, the folder has the monitor's store (`monitor.db`) and log (`run.log`).
"""

import json
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from sys import executable
from typing import Any, Self

from coordinator_model.rules.partition_stalled import PARTITION_STALLED
from tests.e2e.clients import HERE, Client
from tests.e2e.crash_job import Job
from tests.e2e.lag_truth import Brokers, Comparison, Place, Shown, Told, compare, shown_by
from tests.e2e.test_run_and_capture import Topics
from tests.e2e.world import World, _now_ms

TICK_S = 0.1
WINDOW = 10
MIN_DISTANCE_MS = 1_000
OFTEN_S = 3.0
"""A group that commits at least so often is at rest soon after the last message."""


@dataclass(frozen=True)
class Cast:
    """A group: its clients, how they commit, and how fast messages come to each of its partitions."""

    group: str
    software: str
    """kafka-python, confluent, confluent-848, or simple: confluent without members."""
    count: int = 2
    partitions: int = 4
    messages_per_s: float = 5.0
    every_s: float = 2.0
    auto: bool = False
    rate: float | None = None
    """How many messages a second a client reads at most."""
    paused: tuple[int, ...] = ()

    @property
    def topic(self) -> str:
        """Its own topic."""
        return f"topic-{self.group}"


STUCK = (
    Cast("stuck", "confluent", partitions=6),
    Cast("stuck-848", "confluent-848", partitions=6),
    Cast("stuck-simple", "simple", count=1, partitions=3),
)
OTHERS = (
    Cast("paused-auto", "kafka-python", every_s=1.0, auto=True, paused=(0,)),
    Cast("paused-manual", "kafka-python", every_s=3.0, paused=(0,)),
    Cast("idle", "confluent", count=1, messages_per_s=0.0),
    Cast("slow", "confluent", count=1, partitions=3, messages_per_s=10.0, rate=15.0),
    Cast("batch", "confluent", every_s=60.0),
)


@dataclass(frozen=True)
class Committer:
    """How to start one `committer.py`; a `Client` takes it like a `clients.Spec`."""

    cast: Cast
    name: str
    stuck: tuple[tuple[str, int], ...] = ()
    max_poll_interval_ms: int = 30_000

    @property
    def group(self) -> str:
        """The group's name."""
        return self.cast.group

    @property
    def software(self) -> str:
        """The client library."""
        return self.cast.software

    def command(self, bootstrap: str) -> list[str]:
        """Return the process to start."""
        spec = asdict(self.cast) | {
            "bootstrap": bootstrap,
            "client_id": self.name,
            "topics": [self.cast.topic],
            "stuck": self.stuck,
            "max_poll_interval_ms": self.max_poll_interval_ms,
        }
        return [executable, str(HERE / "committer.py"), json.dumps(spec)]


class LagWorld(World):
    """Context manager: a `World` with the real `run` over it, and its own producer."""

    def __init__(self, name: str, folder: Path, *, nodes: int = 1, recorded: bool = True) -> None:
        super().__init__(name, folder, nodes=nodes, recorded=recorded)
        self.casts: list[Cast] = []
        self.stuck: dict[str, list[tuple[str, int]]] = {}
        """By group, the partitions that its clients do not commit now."""
        self._pausing = threading.Event()
        self._paused = threading.Event()

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self.brokers = Brokers(self.cluster.bootstrap_servers)
            self.job = Job(Topics(self.cluster), self.played.folder)
            self.job.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        self.job.kill()
        super().__exit__(*failure)

    # --- who is there ---

    def play(self, casts: Iterable[Cast]) -> None:
        """Start the groups and their messages, and wait until all have their partitions."""
        for cast in casts:
            self.cluster.create_topic(cast.topic, partitions=cast.partitions)
            self.casts.append(cast)
            for number in range(cast.count):
                self.hire(cast, f"{cast.group}-{number}")
        self._seed()
        threading.Thread(target=self._keep_producing, daemon=True).start()
        self.await_settled(*self.clients)

    def hire(self, cast: Cast, name: str, stuck: tuple[tuple[str, int], ...] = ()) -> Client:
        """Start one more client of a group."""
        return self.start(Committer(cast, name, stuck=stuck))

    def living(self, group: str) -> list[Client]:
        """Return the clients of a group that run."""
        return [client for client in list(self.clients) if client.spec.group == group and client.running]

    def owners(self, group: str, topic: str, partition: int, since_ms: int = 0) -> list[str]:
        """Return the members that reported to own a partition at some time since an instant; the last owner is last."""
        found: list[tuple[int, str]] = []
        for client in self.told_by(group):
            tales = [e for e in list(client.events) if e["event"] in {"assigned", "revoked"}]
            for tale, later in pairwise([*tales, {"at_ms": 1 << 62}]):
                if [topic, partition] in tale.get("partitions", ()) and later["at_ms"] >= since_ms:
                    found.append((tale["at_ms"], tale.get("member_id") or client.member_id))
        return [member for _, member in sorted(found)]

    def told_by(self, group: str) -> list[Client]:
        """Return all clients that a group ever had."""
        return [client for client in list(self.clients) if client.spec.group == group]

    def commits(self, cast: Cast, partition: int) -> list[int]:
        """Return when a partition was committed, according to its clients."""
        place = [cast.topic, partition]
        return sorted(
            event["at_ms"]
            for client in self.told_by(cast.group)
            for event in list(client.events)
            if event["event"] == "committed" and any(told[:2] == place for told in event["offsets"])
        )

    def usual_interval_ms(self, cast: Cast, partition: int) -> int | None:
        """Return the median of the intervals between its last commits; None while there are fewer than three."""
        kept: list[int] = []
        for at_ms in self.commits(cast, partition):
            if not kept or at_ms - kept[-1] >= MIN_DISTANCE_MS:
                kept.append(at_ms)
        intervals = [after - before for before, after in pairwise(kept[-WINDOW:])]
        return median_low(intervals) if len(intervals) >= 3 else None

    def stick(self, cast: Cast, partition: int) -> None:
        """Let no client of a group commit a partition any longer."""
        self.stuck[cast.group] = [(cast.topic, partition)]
        self._command(cast.group, f"stick {cast.topic} {partition}", "stuck")

    def unstick(self, group: str) -> None:
        """Let them commit it again."""
        self.stuck.pop(group, None)
        self._command(group, "unstick", "unstuck")

    def _command(self, group: str, command: str, answer: str) -> None:
        clients = self.living(group)
        heard = [len(client.events) for client in clients]
        self.note_action(f"{command}", group=group)
        for client in clients:
            client.say(command)
        for client, before in zip(clients, heard, strict=True):
            client.wait_for(answer, since=before)

    # --- messages ---

    def _seed(self) -> None:
        """Write a few messages to each partition, so that each has something to commit even if no more come."""
        self._producer = _producer(self.cluster.bootstrap_servers)
        for cast in self.casts:
            for partition in range(cast.partitions):
                for number in range(5):
                    self._producer.produce(cast.topic, b"%d" % number, partition=partition)
        self._producer.flush(30)

    def _keep_producing(self) -> None:
        places = [(cast, partition) for cast in self.casts for partition in range(cast.partitions)]
        sent, ticks = dict.fromkeys(places, 0), 0
        while not self._stop_producing.wait(TICK_S):
            if self._pausing.is_set():
                while self._producer.flush(1) and not self._stop_producing.is_set():
                    pass
                self._paused.set()
                continue
            self._paused.clear()
            ticks += 1
            for cast, partition in places:
                while sent[cast, partition] < int(cast.messages_per_s * TICK_S * ticks):
                    sent[cast, partition] += 1
                    with suppress(BufferError):
                        self._producer.produce(cast.topic, b"m", partition=partition)
            self._producer.poll(0)

    def pause_production(self) -> None:
        """Stop the messages; return when the brokers have all of them."""
        self._paused.clear()
        self._pausing.set()
        if not self._paused.wait(120):
            raise TimeoutError("messages cannot be written")

    def resume_production(self) -> None:
        """Start the messages again."""
        self._pausing.clear()

    # --- what the monitor holds ---

    def shown(self) -> dict[Place, Shown]:
        """Return what the monitor's store has for each partition with a commit."""
        return shown_by(self.job.rows("SELECT group_id, body FROM lags"))

    def incidents(self, rule: str) -> list[dict[str, Any]]:
        """Return the incidents of a rule, and when each was reported."""
        told = self.job.rows("SELECT incident_id, min(at_ms) FROM transitions GROUP BY incident_id")
        told_ms = dict(told)
        return [found | {"told_ms": told_ms[found["incident_id"]]} for found in self.job.incidents(rule)]

    def stalls(self, group: str) -> list[dict[str, Any]]:
        """Return the open stalls of a group."""
        rows = self.job.rows("SELECT body FROM incidents WHERE rule = ? AND closed_ms IS NULL", PARTITION_STALLED.id)
        return [body for body in map(json.loads, (text for (text,) in rows)) if body["group"] == group]

    def rounds(self, after_ms: int) -> set[int]:
        """Return the rounds after an instant in which groups have been judged."""
        return {at_ms for (at_ms,) in self.job.rows("SELECT DISTINCT at_ms FROM lags WHERE at_ms > ?", after_ms)}

    def compare(self) -> list[Comparison]:
        """Compare the monitor with the brokers, while no messages come.

        Groups with news are judged once a round. So by the second round all have been judged.
        """
        groups = [cast.group for cast in self.casts]
        before = self.at_rest()
        asked_ms, seen = _now_ms(), set[int]()
        self.job.until(lambda: seen.update(self.rounds(asked_ms)) or seen, lambda seen: len(seen) >= 2)
        shown = self.shown()
        return list(compare(before, self.brokers.offsets(groups), shown))

    def at_rest(self) -> dict[Place, Told]:
        """Return what the brokers say, once the groups that commit often have committed the last messages."""
        groups = [cast.group for cast in self.casts]
        often = {cast.group for cast in self.casts if cast.every_s <= OFTEN_S and cast.rate is None}
        told = self.brokers.offsets(groups)
        for _ in range(5):
            time.sleep(OFTEN_S + 0.5)
            before, told = told, self.brokers.offsets(groups)
            if all(before.get(place) == now for place, now in told.items() if place[0] in often):
                break
        return told


def _producer(bootstrap: str):  # of an untyped library
    from confluent_kafka import Producer

    return Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 5, "message.timeout.ms": 120_000})
