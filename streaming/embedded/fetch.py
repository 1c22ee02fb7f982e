"""`python -m streaming.embedded.fetch`: fetch the jars of ivy.xml with the Ivy inside PySpark, and check their sums.

`--accept` writes the sums of the fetched jars, after a change of ivy.xml: review the diff.
`--connector FOLDER` fetches only the jars of Spark's Kafka source, into another folder.
"""

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from streaming.embedded.errors import EmbeddedBrokerError
from streaming.embedded.jars import JARS_FOLDER, SUMS_FILE, difference, sums_of
from streaming.embedded.java import JavaMissingError, java_command

IVY_FILE: Final = Path(__file__).with_name("ivy.xml")
IVY_FOLDER: Final = JARS_FOLDER.with_name(".ivy")  # our own cache: partly filled ones of other tools confuse Ivy
CONNECTOR: Final = "spark"
ALL: Final = (CONNECTOR, "broker")
KAFKA_TESTS: Final = "kafka-tests"
"""Kafka's own tests and what runs them: not part of ALL, because only our tests need them."""


@click.command(help=__doc__)
@click.option("--accept", is_flag=True)
@click.option("--connector", type=click.Path(file_okay=False, path_type=Path))
def main(*, accept: bool, connector: Path | None) -> None:
    """Fetch the right jars, unless they are already there."""
    try:
        if connector:
            fetch_one(CONNECTOR, connector, connector.with_name(f"{connector.name}.ivy"))
        elif accept or difference(JARS_FOLDER):
            _fetch_all(accept=accept)
        else:
            click.echo(f"jars: all there, sums right ({JARS_FOLDER})")
    except (EmbeddedBrokerError, JavaMissingError) as error:
        raise click.ClickException(f"jars: {error}") from error


def fetch_one(configuration: str, folder: Path, ivy_folder: Path = IVY_FOLDER) -> None:
    """Fetch the jars of one configuration into `folder`, which is unchanged if `EmbeddedBrokerError` is raised."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        fresh = Path(temporary)
        resolve(IVY_FILE, fresh, ivy_folder, (configuration,))
        _require_right(fresh, (configuration,))
        _replace(folder, fresh / configuration)


def _fetch_all(*, accept: bool) -> None:
    fresh = JARS_FOLDER.with_name(".jars.new")
    shutil.rmtree(fresh, ignore_errors=True)
    resolve(IVY_FILE, fresh, IVY_FOLDER, (*ALL, KAFKA_TESTS) if accept else ALL)
    if accept:
        SUMS_FILE.write_text(sums_of(fresh), encoding="ascii")
        shutil.rmtree(fresh / KAFKA_TESTS)
    _require_right(fresh, ALL)
    _replace(JARS_FOLDER, fresh)


def _require_right(folder: Path, configurations: Sequence[str]) -> None:
    if wrong := difference(folder, configurations):
        raise EmbeddedBrokerError("fetched jars are not the ones of jars.sha256:\n" + "\n".join(wrong))
    click.echo(f"jars: {len(list(folder.glob('*/*.jar')))} fetched, sums right", err=True)


def _replace(folder: Path, fresh: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def resolve(ivy_file: Path, folder: Path, ivy_folder: Path, configurations: Sequence[str]) -> None:
    """Run Ivy on a file like ivy.xml, printing a line per jar; raises EmbeddedBrokerError with Ivy's problems."""
    pattern = f"{folder}/[conf]/[artifact]-[revision](-[classifier]).[ext]"
    command = [java_command(), f"-Divy.default.ivy.user.dir={ivy_folder}", "-jar", str(_ivy_jar())]
    command += ["-ivy", str(ivy_file), "-cache", str(ivy_folder / "cache"), "-retrieve", pattern]
    command += ["-confs", *configurations, "-types", "jar", "bundle"]
    click.echo(f"jars: resolving {ivy_file.name}; nothing to see for half a minute", err=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:
        lines = []
        for line in ivy.stdout or ():
            lines.append(line.rstrip())
            if "[SUCCESSFUL ]" in line:
                click.echo("jars: " + line.split("]", 1)[1].split("!")[0].strip(), err=True)
    if ivy.returncode:
        problems = [line for line in lines if "unresolved dependency" in line or "FAILED" in line or "ERROR" in line]
        raise EmbeddedBrokerError(
            "\n".join(["Ivy could not fetch the jars; what is here stays, try again:", *problems[:5]])
        )


def _ivy_jar() -> Path:
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise EmbeddedBrokerError("PySpark, whose Ivy fetches the jars, is not installed: run `make setup`")
    return next(Path(pyspark.origin).parent.glob("jars/ivy-*.jar"))


if __name__ == "__main__":
    main()
