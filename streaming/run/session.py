"""The Spark session and the handful of settings the job relies on, each with why."""

import logging
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from streaming.config import Run
from streaming.run.connector import connector_jars
from streaming.run.errors import RunError
from streaming.run.spark_network import launch_jvm, network_settings

JVM_SILENT = (Py4JError, ConnectionError)  # what calls of its objects raise once it is gone
JVM_ENDS_S = 5.0  # from its last word to its end
LOG4J2 = Path(__file__).with_name("spark-log4j2.properties").absolute()
OLDEST_JAVA = 17  # what Spark 4 runs on


def start_session(run: Run, shuffle_partitions: int, more: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark; raises `RunError` where Java or the Kafka connector is missing."""
    require_java()
    jars = ",".join(map(str, connector_jars()))
    # Without it workers run whatever `python3` PATH has.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    wanted = {"spark.app.name": "group-monitor", "spark.master": run.master, "spark.jars": jars}
    wanted |= settings(shuffle_partitions) | network_settings(run) | dict(more or {})
    try:
        launch_jvm(run, wanted)
        session = SparkSession.builder.config(map=wanted).getOrCreate()
        _without_checksums(session)
    except Exception as error:
        raise RunError(f"Spark does not start: {_first_line(error)}") from error
    return session


def _without_checksums(session: SparkSession) -> None:
    """Let Hadoop make no second file, of checksums, beside each local one: for each it starts a process, `chmod`.

    Not by `RawLocalFileSystem` in the place of this one: Spark's snapshots of state cast it, fail with a warning that
    nobody sees, and all change logs are kept for ever.
    """
    context: Any = session.sparkContext
    files = context._jvm.org.apache.hadoop.fs.FileSystem  # noqa: SLF001 - nothing public has it
    files.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)  # noqa: SLF001


def jvm_status(session: SparkSession) -> int | None:
    """Return the exit status of Spark's JVM (negative: the signal), None while it lives; for when it fell silent."""
    try:
        return int(session.sparkContext._gateway.proc.wait(JVM_ENDS_S))  # noqa: SLF001 - nothing public has it
    except subprocess.TimeoutExpired:
        return None


def stop_session(session: SparkSession) -> None:
    """Stop Spark, whose JVM may be gone: then there is nothing left to stop."""
    with suppress(*JVM_SILENT), warnings.catch_warnings(action="ignore"):
        session.stop()


def settings(shuffle_partitions: int) -> dict[str, str]:
    """Return Spark's settings that the job is built on."""
    return {
        # State larger than memory, and a batch that writes its changes only, not the whole store.
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # State is partitioned by it for ever: it is part of the layout.
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        # The AdminClient way of asking for offsets yields nothing for an internal topic, silently and for ever.
        "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
        # Some Arrow batches a task in steady state: a worker knows lines again while the JVM reads the next ones.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
        # With any other number Spark adds up the bytes of a batch anew after each row.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        # Else a tenth of the JVM's time goes into whether a task that ran twice said the same: it may not, in bytes
        # (what a worker knows decides how it packs), and does, in what they mean. It is as long as one of these is on.
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
        # Packed heartbeats hardly compress, and the number of keys is not worth a look at each before it is written.
        "spark.shuffle.compress": "false",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        # Old batches are needed for going back by hand only; listing a hundred costs more than it is worth.
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.driver.memory": "2g",
        # As Spark reaches the local file system by itself, Hadoop starts more `chmod` for each file that it makes.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        # Batches make much garbage and keep little: no collector needs to work beside them, on cores that they lack,
        # and what a nursery for all of a batch holds dies in it: out of small ones lines got among what is kept.
        # Huge pages, where Linux has them, are fewer to make; a JVM of another system does not know the option.
        "spark.driver.extraJavaOptions": (
            "-XX:+UseParallelGC -Xmn512m -XX:+IgnoreUnrecognizedVMOptions -XX:+UseTransparentHugePages "
            f"-Dlog4j2.configurationFile={LOG4J2.as_uri()}"
        ),
        # What a range of offsets has read is kept for who reads on from its last record, which rarely anybody does: by
        # the usual five minutes most of the heap is that, and a full collection of it takes as long as a batch.
        "spark.kafka.consumer.fetchedData.cache.timeout": "50ms",
        "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "50ms",
        # Hadoop gives its files rights of its own, whatever the process' umask says.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        # Small batches, more than one a second: neither a page nor a bar is of use, and both cost.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }


def require_java() -> None:
    """Raise `RunError` unless a Java is there that Spark can run on."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    hint = f"Java {OLDEST_JAVA} or newer is needed: install a JRE (Debian: openjdk-17-jre-headless) or set JAVA_HOME"
    try:
        said = subprocess.run([java or "java", "-version"], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        raise RunError(f"no Java found. {hint}") from None
    version = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    if version and int(version[1]) < OLDEST_JAVA:
        raise RunError(f"{java} is Java {version[1]}. {hint}")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
