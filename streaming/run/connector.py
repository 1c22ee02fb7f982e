"""The jars of Spark's Kafka source: where they are, and a check that they are the ones this project was tested with.

A checkout gets them from `make setup`, an image from its build. Elsewhere `run` fetches them once, into the user's
cache folder. With `spark.jars.packages` Spark would fetch them itself at every first start, without checking them.
"""

import os
from pathlib import Path

from streaming.embedded.errors import EmbeddedBrokerError
from streaming.embedded.fetch import CONNECTOR, fetch_one
from streaming.embedded.jars import JARS_FOLDER, committed_sums, sum_of
from streaming.embedded.java import JavaMissingError
from streaming.run.errors import RunError

JARS_VARIABLE = "GROUP_MONITOR_JARS"


def connector_folder() -> Path:
    """Return the folder of the jars: the one that the variable names, else the checkout's, else the user's cache."""
    if named := os.environ.get(JARS_VARIABLE):
        return Path(named)
    checkout = JARS_FOLDER / CONNECTOR
    return checkout if checkout.exists() else _cache() / "connector"


def connector_jars() -> list[Path]:
    """Return the jars for Spark, fetched if there are none; raises `RunError` if they are not the expected ones."""
    folder = connector_folder()
    if not any(folder.glob("*.jar")) and not os.environ.get(JARS_VARIABLE):
        _fetch(folder)
    return checked(folder)


def checked(folder: Path) -> list[Path]:
    """Return the jars of a folder, added ones too; raises `RunError` if an expected one is missing or differs."""
    jars = {jar.name: jar for jar in sorted(folder.glob("*.jar"))}
    for path, expected in sorted(line.split()[::-1] for line in committed_sums((CONNECTOR,))):
        name = Path(path).name
        if name not in jars:
            raise RunError(f"{folder} lacks {name}: {_advice(folder)}")
        if sum_of(jars[name]) != expected:
            raise RunError(f"{jars[name]} is not the jar of jars.sha256: {_advice(folder)}")
    return list(jars.values())


def _fetch(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        fetch_one(CONNECTOR, folder, _cache() / "ivy")
    except (EmbeddedBrokerError, JavaMissingError) as error:
        hint = f"or set {JARS_VARIABLE} to a copy of a checkout's .jars/{CONNECTOR} after `make setup`"
        raise RunError(f"the jars of Spark's Kafka source cannot be fetched: {error}\n{hint}") from None


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafka-group-monitor"


def _advice(folder: Path) -> str:
    if os.environ.get(JARS_VARIABLE):
        return f"{JARS_VARIABLE} has to name a copy of .jars/{CONNECTOR} of a checkout after `make setup`"
    return f"remove {folder}, then run fetches it again"
