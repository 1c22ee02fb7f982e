"""The process that runs Kafka's own group coordinator: the driver is compiled once, and plays plans."""

import atexit
import functools
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

from streaming.embedded.errors import EmbeddedBrokerError
from streaming.embedded.jars import broker_class_path
from streaming.embedded.java import JavaMissingError, java_command
from tests.oracle.life import Life
from tests.oracle.plans import Plan

SOURCES = Path(__file__).with_name("java")
FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=4", "-Xshare:auto")


def why_not() -> str | None:
    """Return why no life can be played here, or None if one can."""
    try:
        java = java_command()
        broker_class_path()
    except (JavaMissingError, EmbeddedBrokerError) as missing:
        return str(missing)
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True).stdout
    return None if "jdk.compiler@" in modules else f"{java} cannot compile (no module jdk.compiler): a JDK is needed"


@functools.cache
def classes() -> Path:
    """Return the folder of the compiled driver; it is deleted when this process ends."""
    folder = Path(mkdtemp(prefix="oracle-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    compile_java(SOURCES, folder, broker_class_path())
    return folder


def compile_java(sources: Path, into: Path, class_path: str) -> None:
    """Compile all Java below a folder."""
    compiler = [java_command(), "-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none", "-nowarn"]
    files = map(str, sorted(sources.rglob("*.java")))
    subprocess.run([*compiler, "-d", str(into), *files], check=True, env={**os.environ, "CLASSPATH": class_path})


class Driver:
    """A driver process, which plays one plan after the other."""

    def __init__(self, compiled: Path | None = None) -> None:
        class_path = os.pathsep.join((str(compiled or classes()), broker_class_path()))
        self._process = subprocess.Popen(
            [java_command(), *FLAGS, "-cp", class_path, "oracle.Driver"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def play(self, plan: Plan) -> Life:
        """Return the life of a plan."""
        return Life.parse(plan, self.lines(plan))

    def lines(self, plan: Plan) -> list[bytes]:
        """Return what the driver prints for a plan."""
        into, out = self._process.stdin, self._process.stdout
        assert into is not None
        assert out is not None
        into.write(plan.as_line().encode() + b"\n")
        into.flush()
        lines = []
        while (line := out.readline()) != END:
            if not line:
                raise RuntimeError(f"the driver ended while it played {plan.kind}/{plan.seed}")
            lines.append(line)
        return lines


END = b'{"source":"end"}\n'
