"""deploy/Dockerfile as data: its stages, each with what it inherits."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Dockerfile"


class Stage(NamedTuple):
    """`FROM base AS name` and its instructions: (name, argument), lines joined, comments gone."""

    name: str
    base: str
    own: list[tuple[str, str]]


def _read() -> dict[str, Stage]:
    text = re.sub(r"(?m)^#.*\n", "", FILE.read_text()).replace("\\\n", "")
    read: dict[str, Stage] = {}
    for part in re.split(r"(?m)^FROM ", text)[1:]:
        first, _, rest = part.partition("\n")
        base, name = first.split(" AS ")
        read[name] = Stage(name, base, re.findall(r"(?m)^([A-Z]+) (.+)$", rest))
    return read


STAGES = _read()


def instructions(name: str, wanted: str) -> list[str]:
    """Arguments of one kind of instruction in a stage and, before them, in the stages that it is built on."""
    stage = STAGES[name]
    inherited = instructions(stage.base, wanted) if stage.base in STAGES else []
    return inherited + [argument for kind, argument in stage.own if kind == wanted]


def first_image(name: str) -> str:
    """The image that a stage starts from in the end."""
    return first_image(STAGES[name].base) if STAGES[name].base in STAGES else STAGES[name].base


def packages_stage(name: str) -> str:
    """The stage that an image's packages are copied from."""
    [source] = [arg.split()[0] for arg in instructions(name, "COPY") if arg.split()[1].startswith("/venv/")]
    return source.removeprefix("--from=")
