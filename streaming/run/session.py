"""The Spark session and the few settings that the job relies on, each with its reason."""

import logging
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from streaming.config.settings import Run
from streaming.run.connector import connector_jars
from streaming.run.errors import RunError
from streaming.run.spark_network import launch_jvm, network_settings

JVM_SILENT = (Py4JError, ConnectionError)  # raised by calls of its objects once the JVM is gone
JVM_ENDS_S = 5.0  # how long the JVM may take to exit after it stopped answering
LOG4J2 = Path(__file__).with_name("spark-log4j2.properties").absolute()
OLDEST_JAVA = 17  # the oldest version that Spark 4 runs on
LATE_C2 = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Ten times the JVM's defaults, so that its second compiler does not compile what only the start of Spark runs."""


class Spark:
    """The job's Spark session, which starts when it is first needed.

    Raises `RunError` if Java or the Kafka connector is missing.
    """

    def __init__(self, run: Run, shuffle_partitions: int, more: Mapping[str, str] | None = None) -> None:
        require_java()
        jars = {"spark.jars": ",".join(map(str, connector_jars()))}
        self._run, self._settings = run, settings(shuffle_partitions) | jars | dict(more or {})

    @cached_property
    def session(self) -> SparkSession:
        """The session; raises `RunError` if Spark does not start."""
        # Otherwise workers run the first `python3` on the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        logging.getLogger("py4j").setLevel(logging.ERROR)
        wanted = {"spark.app.name": "group-monitor", "spark.master": self._run.master}
        wanted |= network_settings(self._run) | self._settings
        try:
            launch_jvm(self._run, wanted)
            session = SparkSession.builder.config(map=wanted).getOrCreate()
            _without_checksums(session)
        except Exception as error:
            raise RunError(f"Spark does not start: {_first_line(error)}") from error
        return session

    @property
    def is_started(self) -> bool:
        """Whether the session has been started."""
        return "session" in vars(self)

    def exit_status(self) -> int | None:
        """Return the exit status of Spark's JVM (negative: a signal), or None if it runs or was not started.

        Called once the JVM has stopped answering: waits a while for its end.
        """
        try:
            return int(self.session.sparkContext._gateway.proc.wait(JVM_ENDS_S)) if self.is_started else None  # noqa: SLF001 - nothing public has it
        except subprocess.TimeoutExpired:
            return None

    def has_stopped(self) -> bool:
        """Tell whether Spark has stopped by itself, as it does if it runs out of memory or its master drops it."""
        with suppress(*JVM_SILENT):
            return self.is_started and bool(self.session.sparkContext._jsc.sc().isStopped())  # noqa: SLF001 - as above
        return False

    def stop(self) -> None:
        """Stop the session; if its JVM is gone, there is nothing left to stop."""
        with suppress(*JVM_SILENT), warnings.catch_warnings(action="ignore"):
            if self.is_started:
                self.session.stop()


def cores(master: str) -> int:
    """Return how many tasks the master runs at once; `local[…]` is parsed as Spark does."""
    if found := re.fullmatch(r"local-cluster\[(\d+),\s*(\d+),.*\]", master):
        return int(found[1]) * int(found[2])
    if found := re.fullmatch(r"local\[(\d+).*\]", master):
        return int(found[1])
    return os.cpu_count() or 2


def _without_checksums(session: SparkSession) -> None:
    """Keep Hadoop from writing a checksum file beside each local file: it starts a `chmod` process for each.

    `RawLocalFileSystem` is no alternative: Spark's state snapshots cast the file system, fail with a warning that
    nobody sees, and all change logs are kept forever.
    """
    context: Any = session.sparkContext
    files = context._jvm.org.apache.hadoop.fs.FileSystem  # noqa: SLF001 - nothing public has it
    files.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)  # noqa: SLF001


def settings(shuffle_partitions: int) -> dict[str, str]:
    """Return the Spark settings that the job relies on."""
    return {
        # State may be larger than memory, and a batch writes only its changes, not the whole store.
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # State stays partitioned by this number, so it is part of the layout.
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        # With AdminClient, Spark never gets any offsets of an internal topic, and reports no error.
        "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
        # Several Arrow batches per task in steady state: a worker looks up lines while the JVM reads the next ones.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
        # With any other number Spark adds up the bytes of a batch again after each row.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        # Else a tenth of the JVM's time goes into checking that a repeated task had equal output. Its bytes may differ
        # (packing depends on what a worker knows), but not their meaning. The check is off only if both settings are.
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
        # Packed heartbeats hardly compress, and counting keys is not worth a lookup before each write.
        "spark.shuffle.compress": "false",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        # Old batches are needed only to go back by hand; listing a hundred of them is not worth the cost.
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.driver.memory": "2g",
        # With Spark's default manager, Hadoop starts more `chmod` processes for each file that it creates.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        # Batches make much garbage and keep little: a concurrent collector would only take cores from them. In a young
        # generation as large as a batch its objects die young; with a small one, lines got into the old generation.
        # Huge pages, where Linux has them, are fewer to set up; a JVM of another system does not know the option.
        "spark.driver.extraJavaOptions": (
            "-XX:+UseParallelGC -Xmn512m -XX:+IgnoreUnrecognizedVMOptions -XX:+UseTransparentHugePages "
            f"{LATE_C2} -Dlog4j2.configurationFile={LOG4J2.as_uri()}"
        ),
        # Spark keeps fetched data for a reader that continues from its last record, which is rare. With the default of
        # five minutes it fills most of the heap, and a full collection takes as long as a batch.
        "spark.kafka.consumer.fetchedData.cache.timeout": "50ms",
        "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "50ms",
        # Hadoop sets its own file permissions, regardless of the process's umask.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        # With small batches, more than one a second, neither the UI nor the progress bar is useful, and both cost time.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }


def require_java() -> None:
    """Raise `RunError` unless there is a Java that Spark can run on."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    hint = f"Java {OLDEST_JAVA} or newer is needed: install a JRE (Debian: default-jre-headless) or set JAVA_HOME"
    try:
        said = subprocess.run([java or "java", "-version"], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        raise RunError(f"no Java found. {hint}") from None
    version = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    if version and int(version[1]) < OLDEST_JAVA:
        raise RunError(f"{java} is Java {version[1]}. {hint}")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
