"""A cluster, consumers and a recorder: what a scenario runs on, and the files that it leaves behind.

It leaves in its folder: `<name>.jsonl.gz` (the capture), `<name>.toml` (settings for `replay`), `<name>.truth.json`
(what the brokers' logs say), `<name>.groups.json` (the groups as the brokers described them at the end),
`<name>.actions.json` (what was done to whom, for people), `<name>.clients.json` (what the consumers reported),
`<name>.moments.json` (the groups as the brokers described them while they were quiet), `<name>.broker-<n>.log`.
"""

import contextlib
import gzip
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

from streaming.embedded import EmbeddedCluster
from streaming.embedded.truth import TruthEvent, parse_line, read_truth
from tests.e2e.clients import Client, Spec
from tests.support.waiting import await_true

CONSUMER_SESSION_MS = 7_000  # KIP-848: a broker setting that no client can choose
BROKER_PROPERTIES: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "1000",
    "group.consumer.session.timeout.ms": str(CONSUMER_SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "1500",
}
Described = dict[str, Any]
"""A group's state, and the [topic, partition] pairs that each member owns."""
AFTERMATH_MS = 2_500  # recorded after the last event, so that the grace ends inside the capture


@dataclass(frozen=True)
class Played:
    """What a scenario left behind."""

    name: str
    folder: Path

    @property
    def capture(self) -> Path:
        return self.folder / f"{self.name}.jsonl.gz"

    @property
    def config(self) -> Path:
        return self.folder / f"{self.name}.toml"

    @property
    def truth(self) -> list[TruthEvent]:
        return [TruthEvent(**event) for event in json.loads((self.folder / f"{self.name}.truth.json").read_text())]

    @property
    def groups(self) -> dict[str, Described]:
        """By group, how the brokers described it at the end: its state, and the partitions that each member owns."""
        return json.loads((self.folder / f"{self.name}.groups.json").read_text())

    @property
    def actions(self) -> list[dict]:
        """What was done to whom: at_ms, action, and for a consumer also client, group, member_id."""
        return json.loads((self.folder / f"{self.name}.actions.json").read_text())

    @property
    def told(self) -> list[dict]:
        """What the consumers reported: client, group, software, limit_ms (max.poll.interval.ms), event, at_ms, …"""
        return json.loads((self.folder / f"{self.name}.clients.json").read_text())

    @property
    def moments(self) -> list[dict]:
        """The quiet points: group, at_ms, and what the brokers said about it then; none if nobody asked."""
        kept = self.folder / f"{self.name}.moments.json"
        return json.loads(kept.read_text()) if kept.exists() else []


class World:
    """Context manager: a cluster that is recorded from its first record to its last."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        nodes: int = 1,
        properties: Mapping[str, str] | None = None,
        coordinator_log: bool = False,
        recorded: bool = True,
    ) -> None:
        self.played = Played(name, folder)
        self._recorded = recorded
        self.cluster = EmbeddedCluster(
            nodes, properties={**BROKER_PROPERTIES, **(properties or {})}, coordinator_log=coordinator_log
        )
        self.clients: list[Client] = []
        self.actions: list[dict] = []
        self.moments: list[dict] = []
        self._raw = folder / f"{name}.jsonl"
        self._recorder: subprocess.Popen[bytes] | None = None
        self._stop_producing = threading.Event()
        self._topics: list[str] = []
        self._truth: list[TruthEvent] = []
        self._truth_lock = threading.Lock()
        self._read_until: dict[int, int] = {}
        self._groups: dict[str, Described] = {}

    def __enter__(self) -> Self:
        self.played.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.cluster.start()
            if self._recorded:
                self._start_recorder()
            threading.Thread(target=self._produce, daemon=True).start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._recorded:
                self._groups = self._record_until_settled()
        finally:
            self._end()
            self._save()

    # --- what a scenario does ---

    def topic(self, name: str, partitions: int = 6) -> str:
        self.cluster.create_topic(name, partitions=partitions)
        self._topics.append(name)
        return name

    def start(self, spec: Spec) -> Client:
        client = Client(spec, self.cluster.bootstrap_servers, self._note)
        self.clients.append(client)
        return client

    def restart(self, client: Client, **changes: object) -> Client:
        again = client.again(**changes)
        self.clients.append(again)
        return again

    def group(self, software: str, group: str, count: int, topic: str, **settings: object) -> list[Client]:
        """Start `count` consumers of one group and wait until all of them are members of one settled generation."""
        static = settings.pop("static", False)
        clients = [
            self.start(
                Spec(
                    software,
                    group,
                    f"{group}-{number}",
                    (topic,),
                    instance_id=f"{group}-i{number}" if static else None,
                    **settings,
                )
            )
            for number in range(count)
        ]
        self.await_settled(*clients)
        return clients

    def await_settled(self, *clients: Client, quiet_s: float = 2.5, timeout_s: float = 240.0) -> None:
        """Wait until each client holds an assignment and none has had a new one for `quiet_s`."""
        deadline = time.monotonic() + timeout_s
        while not all(client.assigned for client in clients) or self._newest_ms(clients) > _now_ms() - quiet_s * 1000:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not settled: {[(c.spec.name, c.events[-1:]) for c in clients if not c.assigned]}")
            time.sleep(0.1)

    @staticmethod
    def _newest_ms(clients: tuple[Client, ...]) -> int:
        return max(event["at_ms"] for client in clients for event in client.events if event["event"] == "assigned")

    def truth(self) -> list[TruthEvent]:
        """Return what the brokers have logged so far, in the order of time."""
        with self._truth_lock:
            for node in self.cluster.nodes:
                with node.log_path.open(encoding="utf-8", errors="replace") as log:
                    log.seek(self._read_until.get(node.node_id, 0))
                    while (line := log.readline()).endswith("\n"):
                        self._truth += parse_line(line, f"broker-{node.node_id}")
                        self._read_until[node.node_id] = log.tell()
            return sorted(self._truth, key=lambda event: event.at_ms)

    def await_truth(self, what: str, fits: Callable[[TruthEvent], bool], *, timeout_s: float = 180.0) -> TruthEvent:
        """Wait until a broker has logged an event that fits; `what` names it in the error."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = next((event for event in self.truth() if fits(event)), None)
            if found is not None:
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"no broker logged {what} within {timeout_s} s")
            time.sleep(0.3)

    def await_expiry(self, client: Client, *, timeout_s: float = 180.0) -> TruthEvent:
        member = client.member_id
        return self.await_truth(
            f"the expiry of {member}",
            lambda event: event.kind == "session-expired" and event.member_id == member,
            timeout_s=timeout_s,
        )

    def coordinator(self, group: str) -> int:
        """Return the id of the broker that leads the group's partition of `__consumer_offsets`."""
        from confluent_kafka.admin import AdminClient

        metadata = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers}).list_topics(
            "__consumer_offsets", timeout=20
        )
        partitions = metadata.topics["__consumer_offsets"].partitions
        return partitions[offsets_partition(group, len(partitions))].leader

    def add_partitions(self, topic: str, total: int) -> None:
        from confluent_kafka.admin import AdminClient, NewPartitions

        self.note_action(f"partitions of {topic}: {total}")
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(20)

    def note_action(self, action: str, **facts: object) -> None:
        self.actions.append({"at_ms": _now_ms(), "action": action, **facts})

    # --- what goes on behind it ---

    def _note(self, action: str, client: Client) -> None:
        self.note_action(action, client=client.spec.name, group=client.spec.group, member_id=client.member_id)

    def _start_recorder(self) -> None:
        code = "from streaming.commands.capture import capture_command as c; c()"
        command = [sys.executable, "-c", code, "--bootstrap-servers", self.cluster.bootstrap_servers]
        with (self.played.folder / f"{self.played.name}.recorder.log").open("wb") as log:
            self._recorder = subprocess.Popen(
                [*command, "--from-beginning", "--out", str(self._raw)], stdout=log, stderr=log
            )
        await_true(lambda: self._raw.exists() or self._recorder.poll() is not None, "the recorder does not record")
        assert self._raw.exists(), Path(log.name).read_text()

    def _produce(self) -> None:
        """Produce a trickle of messages, so that auto commit has something to commit."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0, "linger.ms": 5})
        number = 0
        while not self._stop_producing.wait(0.2):
            for topic in list(self._topics):
                with contextlib.suppress(BufferError):
                    producer.produce(topic, value=b"m%d" % number)
                number += 1
            producer.poll(0)

    def _record_aftermath(self) -> None:
        """Wait until the recorder has a line of every running broker that is later than all that happened."""
        wanted = {f"broker-{node.node_id}" for node in self.cluster.nodes if node.running}
        last_ms = max([_now_ms(), *(event.at_ms for event in self.truth())]) + AFTERMATH_MS
        deadline = time.monotonic() + 120  # a broker that was started last may take its time on a busy machine
        with self._raw.open(encoding="utf-8") as rows:
            rows.seek(max(0, self._raw.stat().st_size - 10_000))
            rows.readline()
            while wanted and time.monotonic() < deadline:
                line = rows.readline()
                if not line.endswith("\n"):
                    time.sleep(0.2)
                    continue
                row = json.loads(line)
                if row["source"] == "telemetry" and row["timestamp_ms"] >= last_ms:
                    wanted.discard(row["key"])
        if wanted:
            raise TimeoutError(f"the recorder has no late line of {sorted(wanted)}")

    def _record_until_settled(self, timeout_s: float = 300.0) -> dict[str, Described]:
        """Record the aftermath until the groups stay the same meanwhile, and return how the brokers describe them.

        Clients cannot tell that all is settled: one may be rejoining, or may not have noticed yet that it was removed.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            described = self._ask_for_groups()
            if any(group["state"] not in ("STABLE", "EMPTY", "DEAD") for group in described.values()):
                time.sleep(0.5)
                continue
            self._record_aftermath()
            if self._ask_for_groups() == described:
                return described
        raise TimeoutError(f"the groups go on changing after {timeout_s:.0f} s: {described}")

    def _ask_for_groups(self) -> dict[str, Described]:
        """Return how the brokers themselves describe each group at the end: its state and who owns what."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers})
        names = sorted({client.spec.group for client in self.clients})
        answers = {name: future.result(20) for name, future in admin.describe_consumer_groups(names).items()}
        return {
            name: {
                "state": answer.state.name,
                "members": {
                    member.member_id: sorted(
                        [owned.topic, owned.partition] for owned in member.assignment.topic_partitions
                    )
                    for member in answer.members
                },
            }
            for name, answer in answers.items()
        }

    def _end(self) -> None:
        self._stop_producing.set()
        if self._recorder is not None:
            self._recorder.terminate()
            try:
                self._recorder.wait(20)
            except subprocess.TimeoutExpired:
                self._recorder.kill()
                self._recorder.wait()
        for client in self.clients:
            client.end()
        self._keep_logs()
        self.cluster.close()

    def _keep_logs(self) -> None:
        folder, name = self.played.folder, self.played.name
        for node in self.cluster.nodes:
            if node.log_path.exists():
                shutil.copy(node.log_path, folder / f"{name}.broker-{node.node_id}.log")

    def _save(self) -> None:
        folder, name = self.played.folder, self.played.name
        logs = {f"broker-{node.node_id}": folder / f"{name}.broker-{node.node_id}.log" for node in self.cluster.nodes}
        truth = read_truth({broker: [path] for broker, path in logs.items() if path.exists()})
        (folder / f"{name}.truth.json").write_text(_lines(event._asdict() for event in truth))
        (folder / f"{name}.actions.json").write_text(_lines(self.actions))
        (folder / f"{name}.clients.json").write_text(_lines(chain.from_iterable(map(_told, self.clients))))
        (folder / f"{name}.moments.json").write_text(_lines(self.moments))
        (folder / f"{name}.groups.json").write_text(json.dumps(self._groups, indent=1))
        self.played.config.write_text(f"[thresholds]\nconsumer_session_timeout_ms = {CONSUMER_SESSION_MS}\n")
        if self._raw.exists():
            with self._raw.open("rb") as raw, gzip.open(self.played.capture, "wb", compresslevel=5) as packed:
                shutil.copyfileobj(raw, packed)
            self._raw.unlink()


def _told(client: Client) -> list[dict]:
    who = {"client": client.spec.name, "group": client.spec.group, "software": client.spec.software}
    return [{**who, "limit_ms": client.spec.max_poll_interval_ms, **event} for event in client.events]


def _lines(rows: object) -> str:
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def _now_ms() -> int:
    return round(time.time() * 1000)


def offsets_partition(group: str, partitions: int) -> int:
    """Return Kafka's abs(Java hash) % partitions, for the plain ASCII group names of the scenarios."""
    number = 0
    for character in group:
        number = (31 * number + ord(character)) & 0xFFFFFFFF
    signed = number - (1 << 32) if number >= 1 << 31 else number
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions
