"""Lives that were once judged wrong, shrunk and kept as files: a plan, and everything that the driver printed for it.

They are captures too: `group-monitor replay` reads them, and skips what no monitor sees.
"""

import gzip
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tests.oracle.life import Life
from tests.oracle.plans import Plan

FOLDER = Path(__file__).parents[1] / "fixtures" / "lives"


def keep(name: str, plan: Plan, lines: Iterable[bytes]) -> Path:
    """Write a life to a file."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.jsonl.gz"
    first = json.dumps({"source": "plan", "plan": asdict(plan)}).encode() + b"\n"
    path.write_bytes(gzip.compress(b"".join([first, *lines]), mtime=0))
    return path


def load(path: Path) -> Life:
    """Read a kept life."""
    first, *lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    return Life.parse(Plan.from_dict(json.loads(first)["plan"]), lines)
