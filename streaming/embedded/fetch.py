"""`python -m streaming.embedded.fetch`: get the jars of ivy.xml with the Ivy inside PySpark, and check their sums.

`--accept` writes the sums of what was fetched: after a change of ivy.xml, to be looked at in the diff.
"""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from streaming.embedded.errors import EmbeddedBrokerError
from streaming.embedded.jars import JARS_FOLDER, SUMS_FILE, difference, sums_of
from streaming.embedded.java import JavaMissingError, java_command

IVY_FILE: Final = Path(__file__).with_name("ivy.xml")
IVY_FOLDER: Final = JARS_FOLDER.with_name(".ivy")  # a cache of our own: half-filled ones of other tools confuse Ivy


def main(*, accept: bool) -> None:
    """Leave the right jars in place; fetches only where they are not there."""
    if not accept and not difference(JARS_FOLDER):
        click.echo(f"jars: all there, sums right ({JARS_FOLDER})")
        return
    fresh = JARS_FOLDER.with_name(".jars.new")
    shutil.rmtree(fresh, ignore_errors=True)
    _resolve(fresh)
    if accept:
        SUMS_FILE.write_text(sums_of(fresh), encoding="ascii")
    elif wrong := difference(fresh):
        raise EmbeddedBrokerError("fetched jars are not the ones of jars.sha256:\n" + "\n".join(wrong))
    shutil.rmtree(JARS_FOLDER, ignore_errors=True)
    fresh.rename(JARS_FOLDER)
    click.echo(f"jars: {len(list(JARS_FOLDER.glob('*/*.jar')))} fetched, sums {'written' if accept else 'right'}")


def _resolve(folder: Path) -> None:
    """Run Ivy on ivy.xml, a line per jar; raises EmbeddedBrokerError with what Ivy says is wrong."""
    pattern = f"{folder}/[conf]/[artifact]-[revision].[ext]"
    command = [java_command(), f"-Divy.default.ivy.user.dir={IVY_FOLDER}", "-jar", str(_ivy_jar())]
    command += ["-ivy", str(IVY_FILE), "-cache", str(IVY_FOLDER / "cache"), "-retrieve", pattern]
    command += ["-confs", "spark", "broker", "-types", "jar", "bundle"]
    click.echo("jars: resolving ivy.xml; nothing to see for half a minute")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:
        lines = []
        for line in ivy.stdout or ():
            lines.append(line.rstrip())
            if "[SUCCESSFUL ]" in line:
                click.echo("jars: " + line.split("]", 1)[1].split("!")[0].strip())
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
    try:
        main(accept="--accept" in sys.argv[1:])
    except (EmbeddedBrokerError, JavaMissingError) as error:
        sys.exit(f"jars: {error}")
