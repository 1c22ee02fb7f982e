"""The jars in the project folder: where they are, and whether they are the right ones."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from streaming.embedded.errors import EmbeddedBrokerError

JARS_FOLDER: Final = Path(__file__).resolve().parents[2] / ".jars"
SUMS_FILE: Final = Path(__file__).with_name("jars.sha256")


def broker_class_path() -> str:
    """Return the whole class path of the embedded broker."""
    return os.pathsep.join(map(str, _jars_of("broker")))


def sums_of(folder: Path) -> str:
    """Return the SHA-256 sums of the jars in `folder`, sorted, in the form that `sha256sum --check` reads."""
    jars = sorted(folder.glob("*/*.jar"))
    return "".join(f"{sum_of(jar)}  {jar.relative_to(folder)}\n" for jar in jars)


def sum_of(jar: Path) -> str:
    """Return the SHA-256 sum of a file."""
    return hashlib.sha256(jar.read_bytes()).hexdigest()


def difference(folder: Path, configurations: Sequence[str] = ("spark", "broker")) -> list[str]:
    """Return the lines in which `folder` and the committed sums differ; empty if exactly the right jars are there."""
    return sorted(set(sums_of(folder).splitlines()) ^ committed_sums(configurations))


def committed_sums(configurations: Sequence[str]) -> set[str]:
    """Return the lines of jars.sha256 for configurations of ivy.xml."""
    lines = SUMS_FILE.read_text(encoding="ascii").splitlines()
    return {line for line in lines if line.split()[1].partition("/")[0] in configurations}


def _jars_of(configuration: str) -> list[Path]:
    jars = sorted((JARS_FOLDER / configuration).glob("*.jar"))
    if not jars:
        raise EmbeddedBrokerError(f"no jars in {JARS_FOLDER / configuration}: run `make setup`")
    return jars
