"""Consumers as processes: a scenario starts, stalls, freezes and kills them, and reads their events."""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from streaming.embedded.jars import broker_class_path
from streaming.embedded.java import java_command

HERE = Path(__file__).parent
START_TIMEOUT_S = 180.0


@dataclass(frozen=True)
class Spec:
    """How to start one consumer; `software` is kafka-python, confluent, confluent-848, java or java-848."""

    software: str
    group: str
    name: str
    topics: tuple[str, ...]
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 1_500
    max_poll_interval_ms: int = 30_000
    instance_id: str | None = None
    commit: bool = True
    assignor: str = "range"
    stubborn: bool = False  # kafka-python only: keeps sending heartbeats after max.poll.interval.ms
    reporter: bool = False  # Python only: reports its polls
    pushes: bool = True  # confluent-kafka only: without, it sends no metrics, and asks for its coordinator more often
    callbacks: bool = True  # confluent-kafka only: with them a KIP-848 client that hangs cannot leave

    @property
    def kip_848(self) -> bool:
        return self.software.endswith("-848")

    def command(self, bootstrap: str) -> list[str]:
        return self._java(bootstrap) if self.software.startswith("java") else self._python(bootstrap)

    def _python(self, bootstrap: str) -> list[str]:
        spec = {
            "client": self.software.removesuffix("-848"),
            "protocol": "consumer" if self.kip_848 else "classic",
            "bootstrap": bootstrap,
            "group": self.group,
            "client_id": self.name,
            "instance_id": self.instance_id,
            "topics": self.topics,
            "session_timeout_ms": self.session_timeout_ms,
            "heartbeat_interval_ms": self.heartbeat_interval_ms,
            "max_poll_interval_ms": self.max_poll_interval_ms,
            "commit": self.commit,
            "assignor": self.assignor,
            "stubborn": self.stubborn,
            "reporter": self.reporter,
            "callbacks": self.callbacks,
            "pushes": self.pushes,
        }
        return [sys.executable, str(HERE / "consumer.py"), json.dumps(spec)]

    def _java(self, bootstrap: str) -> list[str]:
        spec = {
            "topics": ",".join(self.topics),
            "bootstrap.servers": bootstrap,
            "group.id": self.group,
            "client.id": self.name,
            "max.poll.interval.ms": self.max_poll_interval_ms,
            "enable.auto.commit": str(self.commit).lower(),
            "auto.commit.interval.ms": 1000,
            "metadata.max.age.ms": 2000,
            "auto.offset.reset": "earliest",
            "group.protocol": "consumer" if self.kip_848 else "classic",
        }
        if self.instance_id:
            spec["group.instance.id"] = self.instance_id
        if not self.kip_848:
            spec["session.timeout.ms"] = self.session_timeout_ms
            spec["heartbeat.interval.ms"] = self.heartbeat_interval_ms
        return java_program("GroupConsumer", *(f"{k}={v}" for k, v in spec.items()))


def java_program(name: str, *arguments: str) -> list[str]:
    """Return the command that runs one of the Java programs here."""
    flags = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    class_path = os.pathsep.join((str(java_consumer()), broker_class_path()))
    return [java_command(), *flags, "-cp", class_path, name, *arguments]


def java_compiles() -> bool:
    """Tell whether this Java has a compiler: a JRE runs the broker, but not our Java consumer."""
    modules = subprocess.run([java_command(), "--list-modules"], capture_output=True, text=True, check=True).stdout
    return "jdk.compiler@" in modules


@cache
def java_consumer() -> Path:
    """Return the folder with the compiled Java programs of this package."""
    folder = Path(mkdtemp(prefix="group-monitor-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    compiler = [java_command(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", broker_class_path()]
    subprocess.run([*compiler, "-d", str(folder), *map(str, HERE.glob("*.java"))], check=True)
    return folder


@dataclass
class Client:
    """One consumer process; a restart of the same consumer is a new Client with the same spec."""

    spec: Spec
    bootstrap: str
    note: Callable[[str, "Client"], None]
    events: list[dict] = field(default_factory=list)
    frozen: bool = False

    def __post_init__(self) -> None:
        self._process = subprocess.Popen(
            self.spec.command(self.bootstrap),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._heard = threading.Condition()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.note("start", self)

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            if not line.startswith("{"):
                continue
            with self._heard:
                self.events.append(json.loads(line))
                self._heard.notify_all()
        with self._heard:
            self._heard.notify_all()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def member_id(self) -> str:
        """The member id of its last join, "" before the first."""
        return next((event["member_id"] for event in reversed(self.events) if event.get("member_id")), "")

    @property
    def assigned(self) -> bool:
        """Whether it has an assignment now, even an empty one."""
        last = next(
            (event["event"] for event in reversed(self.events) if event["event"] in {"assigned", "revoked"}), ""
        )
        return self.running and last == "assigned"

    def wait_for(self, event: str, *, since: int = 0, timeout_s: float = START_TIMEOUT_S) -> dict:
        """Return the first event of this name at or after index `since` of `events`; wait for it."""
        deadline = time.monotonic() + timeout_s
        with self._heard:
            while True:
                for told in self.events[since:]:
                    if told["event"] == event:
                        return told
                if not self._heard.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"{self.spec.name}: no {event!r} within {timeout_s} s; heard {self.events[-3:]}")

    def again(self, **changes: object) -> "Client":
        """Start the same consumer again, as a supervisor would."""
        return Client(replace(self.spec, **changes), self.bootstrap, self.note)

    def kill(self) -> None:
        self.note("kill", self)
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        self.note("freeze", self)
        self.frozen = True
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self.frozen = False
        self.note("thaw", self)

    def stall(self, seconds: float) -> None:
        """Keep it from polling for that long; its heartbeats go on."""
        self.note(f"stall {seconds}", self)
        self.say(f"stall {seconds}")

    def unsubscribe(self) -> None:
        """Let it leave its group but stay alive; librdkafka leaves when it polls."""
        self.note("unsubscribe", self)
        self.say("unsubscribe")

    def subscribe(self, *topics: str) -> None:
        self.note(f"subscribe {topics}", self)
        self.say("subscribe " + ",".join(topics))

    def close(self) -> None:
        """Ask it to close properly, without waiting."""
        self.note("close", self)
        self.say("close")

    def say(self, line: str) -> None:
        """Send it a command of its own."""
        if self._process.stdin is not None:
            with suppress(OSError):  # it ended by itself meanwhile
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()

    def end(self) -> None:
        """End the process, whatever it is doing."""
        if self.running:
            self._process.kill()
        self._process.wait()
        self._listener.join()  # it reads to the end
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):  # a command that it never read
                    stream.close()
