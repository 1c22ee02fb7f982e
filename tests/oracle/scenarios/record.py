"""Every scenario of Kafka's own `GroupMetadataManagerTest`, recorded as a life.

The tests run unchanged, under JUnit. Code is woven into their coordinator and its mocks (`java/oracle/Weaving.java`),
so that each request, its answer, each record and each timer leave the traces that they would leave outside.
"""

import atexit
import functools
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from streaming.embedded.errors import EmbeddedBrokerError
from streaming.embedded.fetch import KAFKA_TESTS, fetch_one
from streaming.embedded.jars import JARS_FOLDER, broker_class_path, committed_sums, sum_of
from streaming.embedded.java import java_command
from tests.oracle import driver
from tests.oracle.life import PROBE, Life
from tests.oracle.plans import Plan

SOURCES = Path(__file__).with_name("java")
TESTS = "org.apache.kafka.coordinator.group.GroupMetadataManagerTest"
JARS = JARS_FOLDER.with_name(".cache") / KAFKA_TESTS
END = b'"source":"scenario"'


@dataclass(frozen=True)
class Scenario:
    """What one test leaves. ``failure``: why it failed, which is a fault of the recording."""

    name: str
    failure: str | None
    life: Life

    @property
    def method(self) -> str:
        """The test's name, without its parameters."""
        return self.name.partition("(")[0]

    @property
    def is_visible(self) -> bool:
        """Whether anything is visible outside except that time passes."""
        return any(row.topic and PROBE not in (row.value or b"") for row in self.life.rows)


def why_not() -> str | None:
    """Return why no scenario can be recorded here, or None if they can."""
    if missing := driver.why_not():
        return missing
    try:
        jars()
    except EmbeddedBrokerError as error:
        return str(error)
    return None


def jars() -> list[Path]:
    """Return the jars of Kafka's tests, and fetch them if they are missing; raise ``EmbeddedBrokerError``."""
    wanted = {line.split()[1]: line.split()[0] for line in committed_sums((KAFKA_TESTS,))}
    there = {f"{KAFKA_TESTS}/{jar.name}": sum_of(jar) for jar in JARS.glob("*.jar")}
    if there != wanted:
        fetch_one(KAFKA_TESTS, JARS)
    return sorted(JARS.glob("*.jar"))


@functools.cache
def record() -> dict[str, Scenario]:
    """Run all tests of the class and return what each left, by its name."""
    own, of_driver = Path(mkdtemp(prefix="scenarios-")), driver.classes()
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    class_path = os.pathsep.join([str(own), str(of_driver), *map(str, jars()), broker_class_path()])
    driver.compile_java(SOURCES, own, class_path)
    [agent] = [jar for jar in jars() if jar.name.startswith("byte-buddy-agent-")]
    command = [java_command(), *driver.FLAGS, f"-javaagent:{agent}", "oracle.Scenarios", TESTS]
    environment = {**os.environ, "CLASSPATH": class_path}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as running:
        scenarios = {scenario.name: scenario for scenario in _parse(running.stdout or ())}
    if running.returncode:
        raise RuntimeError(f"the tests of Kafka ended with {running.returncode} after {len(scenarios)} scenarios")
    return scenarios


def _parse(lines: Iterable[bytes]) -> Iterator[Scenario]:
    rows: list[bytes] = []
    for line in lines:
        if END not in line:
            rows.append(line)
            continue
        told = json.loads(line)
        yield Scenario(told["name"], told["failure"], _life(told, rows))
        rows = []


def _life(told: dict[str, Any], rows: list[bytes]) -> Life:
    until_ms = max((json.loads(row)["timestamp_ms"] for row in rows), default=0)
    timeouts_ms = told["session_timeouts_ms"]
    config = {f"group.{kind}.session.timeout.ms": str(timeout_ms) for kind, timeout_ms in timeouts_ms.items()}
    return Life.parse(Plan(0, told["name"], until_ms, (), (), config=config, start_ms=0), rows)
