"""`python -m streaming.client_metrics.compile_plugin`: compile the broker's plugin from its sources into its jar."""

import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Final

import click

from streaming.client_metrics.plugin import PLUGIN_JAR
from streaming.embedded.jars import broker_class_path
from streaming.embedded.java import java_command

_JAVA_RELEASE: Final = "11"  # of the oldest brokers that accept pushes, 3.7 to 3.9
_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip entry, so that equal classes make equal jars


def compile_plugin(jar: Path, java: str, class_path: str) -> None:
    """Compile the plugin's sources into a jar; raise `CalledProcessError` if that fails."""
    sources = sorted(map(str, PLUGIN_JAR.parent.glob("*.java")))
    compiler = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-cp", class_path]
    flags = ("--release", _JAVA_RELEASE, "-g:none", "-proc:none", "-Xlint:-options")
    with tempfile.TemporaryDirectory() as temporary:
        subprocess.run([*compiler, *flags, "-d", temporary, *sources], check=True)
        with zipfile.ZipFile(jar, "w") as made:
            for file in sorted(Path(temporary).rglob("*.class")):
                entry = zipfile.ZipInfo(file.relative_to(temporary).as_posix(), _EARLIEST)
                made.writestr(entry, file.read_bytes())


@click.command(help=__doc__)
def main() -> None:
    """Replace the jar in the source tree."""
    compile_plugin(PLUGIN_JAR, java_command(), broker_class_path())
    click.echo(f"{PLUGIN_JAR}: {PLUGIN_JAR.stat().st_size} bytes")


if __name__ == "__main__":
    main()
