"""The real `run` as a process of its own: started, killed with its children, started again, and its store queried."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tests.e2e import crash_launcher
from tests.e2e.crash_cluster import LiveCluster

PROC = Path("/proc")
ROOT = Path(__file__).parents[2]
PATIENCE_S = 300  # ten seconds are enough on an idle machine
Found = TypeVar("Found")


class Job:
    """`run` over a cluster's topics, with a folder for all that outlives the process."""

    def __init__(self, cluster: LiveCluster, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "monitor.toml"
        self.database = folder / "monitor.db"
        self.log = folder / "run.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.sessions: list[int] = []
        """The sessions of all drivers so far, the newest last; a JVM and its workers stay in their driver's session."""
        self._log_start = 0
        self.config.write_text(f"""
[kafka]
bootstrap_servers = "{cluster.broker.bootstrap_servers}"
offsets_topic = "{cluster.records}"
telemetry_topics = ["{cluster.lines}"]
client_telemetry_topics = []
[run]
data_folder = "{folder / "data"}"
master = "local[2]"
[store]
url = "sqlite:///{self.database}"
[serve]
port = 0
""")

    def start(self, doom: str = "") -> None:
        """Start it; `doom` says when it must kill itself (see `crash_launcher`)."""
        launcher = [crash_launcher.__file__, doom] if doom else ["-m", "streaming.cli"]
        with self.log.open("a") as log:
            self._log_start = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, *launcher, "run", "--config", str(self.config)],
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
        self.sessions.append(self.process.pid)

    @property
    def running(self) -> bool:
        """Whether the driver lives."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL the driver and its JVM, which share a process group; the workers end with the JVM."""
        if self.process is not None and self.running:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def jvms(self) -> list[int]:
        """Return the process id of the newest driver's JVM, once it is there.

        The JVM forks for each file that it creates (Hadoop runs `chmod`), and at first such a fork looks like its
        parent.
        """
        alike = [process.pid for process in processes(self.sessions[-1:]) if "deploy.SparkSubmit" in process.command]
        return sorted(alike)[:1]

    def workers(self) -> list[int]:
        """Return the process ids of its Python workers, and of the daemon that forks them."""
        return [process.pid for process in processes(self.sessions[-1:]) if "pyspark.daemon" in process.command]

    def strays(self) -> list["Process"]:
        """Return the processes that former drivers have left behind."""
        return processes(self.sessions[:-1])

    def await_own_end(self) -> None:
        """Wait until a doomed process has killed itself."""
        assert self.process is not None
        assert self.process.wait(PATIENCE_S) == -signal.SIGKILL, self.last_words()

    def said(self) -> str:
        """Return what this process has logged."""
        with self.log.open() as log:
            log.seek(self._log_start)
            return log.read()

    def last_words(self) -> str:
        """Return the end of the log, for a failed assertion."""
        return self.said()[-3_000:]

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Query the store; return nothing if it has no tables yet or is locked."""
        if not self.database.exists():
            return []
        try:
            with closing(sqlite3.connect(self.database)) as database:
                return database.execute(sql, values).fetchall()
        except sqlite3.OperationalError as error:
            if not str(error).startswith(("no such table", "database is locked")):
                raise  # a query that fits no schema must not look like an empty store
            return []

    def until(self, look: Callable[[], Found], enough: Callable[[Found], Any] = bool) -> Found:
        """Look until it is enough; the process must stay alive meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while not enough(found := look()):
            assert self.running, f"run ended by itself:\n{self.last_words()}"
            assert time.monotonic() < deadline, f"only {found}\n{self.last_words()}"
            time.sleep(0.1)
        return found

    def await_rows(self, sql: str, enough: Callable[[Sequence[Any]], Any] = bool) -> Sequence[Any]:
        """Wait for a query's rows."""
        return self.until(lambda: self.rows(sql), enough)

    def batch(self) -> int:
        """Return the number of the newest batch in the store, -1 before the first."""
        return max((number for (number,) in self.rows("SELECT batch_id FROM applied_batches")), default=-1)

    def await_batches(self, more: int) -> None:
        """Wait until so many more batches are stored."""
        before = self.batch()
        self.until(self.batch, lambda batch: batch >= before + more)

    def await_progress(self, at_ms: int) -> None:
        """Wait until everything up to an instant of the brokers' clock has been judged and stored."""
        self.await_rows("SELECT min(at_ms) FROM shards WHERE at_ms > 0", lambda rows: (rows[0][0] or 0) >= at_ms)

    def incidents(self, rule: str) -> list[dict[str, Any]]:
        """Return the incidents of a rule: the stored body, with `late`."""
        rows = self.rows("SELECT body, late FROM incidents WHERE rule = ? ORDER BY opened_ms", rule)
        return [json.loads(body) | {"late": bool(late)} for body, late in rows]

    def story(self) -> dict[str, list[str]]:
        """Return the transitions of each incident that people were told of, in order."""
        told: dict[str, list[str]] = {}
        for incident_id, transition in self.rows("SELECT incident_id, transition FROM transitions ORDER BY id"):
            told.setdefault(incident_id, []).append(transition)
        return told


class Process(NamedTuple):
    """A process of a session: its id and its command line."""

    pid: int
    command: str


def processes(sessions: Sequence[int]) -> list[Process]:
    """Return the live processes of some sessions."""
    found = []
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
            command = (folder / "cmdline").read_text().replace("\0", " ")
            if session in sessions and command:  # a zombie has none
                found.append(Process(int(folder.name), command))
    return found
