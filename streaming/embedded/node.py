"""One broker process: started, stopped, killed, paused and resumed by the process id we started, never by name."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from streaming.client_metrics.plugin import PLUGIN_JAR
from streaming.embedded import ask
from streaming.embedded.errors import EmbeddedBrokerError
from streaming.embedded.jars import broker_class_path
from streaming.embedded.java import java_command

START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 60.0
# Without C2, the JVM's second compiler, a broker needs half the processor time until it is ready.
_C1_ONLY: Final = "-XX:TieredStopAtLevel=1"
_FORMAT_FLAGS: Final = ("-Xmx128m", "-XX:+UseSerialGC", _C1_ONLY)
_BROKER_FLAGS: Final = ("-Xmx512m", _C1_ONLY, "-Djava.awt.headless=true", "-Duser.timezone=UTC")
JVM_OPTIONS: Final = "KAFKA_JVM_PERFORMANCE_OPTS"
"""The environment variable with more options of a broker's JVM, as in Kafka's own scripts."""


class Node:
    """A broker-and-controller in `folder`: server.properties, log4j2.yaml, broker.log, pid and data/."""

    def __init__(self, node_id: int, port: int, folder: Path) -> None:
        self.node_id = node_id
        self.port = port
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._log4j2: tuple[str, ...] = ()
        self._log_start_bytes = 0  # where the log of the newest process begins

    @property
    def bootstrap_server(self) -> str:
        """`host:port` of this broker alone."""
        return f"127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        """The broker's own log: INFO, `[2026-11-21T01:00:42,693] INFO …`, UTC; restarts append to it."""
        return self.folder / "broker.log"

    @property
    def data_folder(self) -> Path:
        """Kafka's log.dirs."""
        return self.folder / "data"

    @property
    def running(self) -> bool:
        """Whether the process exists, even if it is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The JVM's process id; raises EmbeddedBrokerError if it does not run."""
        return self._running_process().pid

    def write_log4j2(self, files: Mapping[str, str]) -> None:
        """Write the log4j2 files (name -> text) that the next process is started with, in this order."""
        for name, text in files.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        self._log4j2 = tuple(files)

    def start(self) -> None:
        """Start (again, on the same data and port) and wait until it answers as a live broker."""
        self.launch()
        self.await_ready({self.node_id})

    def launch(self) -> None:
        """Start without waiting."""
        if self.running:
            raise EmbeddedBrokerError(f"broker {self.node_id} runs already (pid {self.pid})")
        files = ",".join(str(self.folder / name) for name in self._log4j2)
        more = shlex.split(os.environ.get(JVM_OPTIONS, ""))
        flags = (*_BROKER_FLAGS, *more, f"-Dlog4j2.configurationFile={files}")
        self._process = self._java(flags, "kafka.Kafka", str(self.folder / "server.properties"))
        (self.folder / "pid").write_text(str(self._process.pid))

    def await_ready(self, broker_ids: set[int]) -> None:
        """Wait until this broker answers and reports all of `broker_ids` as alive."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not broker_ids <= ask.live_brokers(self.port):
            if not self.running:
                raise EmbeddedBrokerError(f"broker {self.node_id} did not start: {self.last_words()}")
            if time.monotonic() > deadline:
                raise EmbeddedBrokerError(
                    f"broker {self.node_id} is not ready after {START_TIMEOUT_S:.0f} s: {self.last_words()}"
                )
            time.sleep(0.05)

    def stop(self) -> None:
        """Request an orderly shutdown (SIGTERM) and wait; send SIGKILL after a minute."""
        self.ask_to_stop()
        self.await_stop()

    def ask_to_stop(self) -> None:
        """Send SIGTERM without waiting."""
        self._running_process().terminate()
        self.resume()  # a paused process would get the signal only when resumed

    def await_stop(self) -> None:
        """Wait for the end of a process that was asked to stop."""
        try:
            self._running_process().wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._running_process().kill()
        self._reap()

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end of the process."""
        self._running_process().kill()
        self._reap()

    def pause(self) -> None:
        """Send SIGSTOP and wait until every thread stands still: connections stay open, but nothing answers."""
        process = self._running_process()
        process.send_signal(signal.SIGSTOP)
        # On a busy machine the signal takes effect late.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._running_process().send_signal(signal.SIGCONT)

    def launch_format(self, cluster_id: str) -> subprocess.Popen[bytes]:
        """Start formatting the storage, without waiting."""
        properties = str(self.folder / "server.properties")
        return self._java(_FORMAT_FLAGS, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", properties)

    @property
    def formatted(self) -> bool:
        """Whether the data folder already belongs to a cluster."""
        return (self.data_folder / "meta.properties").exists()

    def _java(self, flags: Sequence[str], *arguments: str) -> subprocess.Popen[bytes]:
        class_path = os.pathsep.join((broker_class_path(), str(PLUGIN_JAR)))
        command = [java_command(), *flags, "-cp", class_path, *arguments]
        with self.log_path.open("ab") as log:
            self._log_start_bytes = log.tell()
            # A new session: Ctrl-C in the terminal must reach only the owner, which then shuts the brokers down.
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def _running_process(self) -> subprocess.Popen[bytes]:
        if self._process is None or not self.running:
            raise EmbeddedBrokerError(f"broker {self.node_id} does not run")
        return self._process

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
        (self.folder / "pid").unlink(missing_ok=True)

    def last_words(self) -> str:
        """Return the first error in the log of its newest process, else the last line, and where the log is."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start_bytes)
            lines = log.read().decode(errors="replace").split("\n")
        errors = (line for line in lines if " ERROR " in line or " FATAL " in line or "Exception" in line)
        return f"{next(errors, ' '.join(lines[-2:]).strip())} (log: {self.log_path})"
