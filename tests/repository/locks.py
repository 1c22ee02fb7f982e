"""The locks as data, and the packages that they name as this virtual environment has them."""

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DEVELOPMENT = ROOT / "requirements.lock"
IMAGES = sorted((ROOT / "deploy" / "locks").glob("*.lock"))


class Pin(NamedTuple):
    version: str
    marker: str
    hashes: frozenset[str]


class Lock(NamedTuple):
    """Package -> how it is pinned."""

    pins: dict[str, Pin]

    def link(self, folder: Path) -> None:
        """Fill a folder with links to the modules of these packages and of no other."""
        folder.mkdir()
        for name, pin in self.pins.items():
            try:
                found = distribution(name)
            except PackageNotFoundError:
                assert pin.marker, f"{name} is not installed"
                continue
            for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
                if not (folder / top).exists():
                    (folder / top).symlink_to(found.locate_file(top))


def read(path: Path) -> Lock:
    pins = {}
    for entry in re.split(r"\n(?=\S)", path.read_text()):
        if found := re.match(r"([\w.-]+)==(\S+)( ;[^\\]*)?", entry):
            name, version, marker = found.groups(default="")
            pins[name] = Pin(version, marker.strip(" ;"), frozenset(re.findall(r"--hash=(\S+)", entry)))
    return Lock(pins)


def locked(image: str) -> Lock:
    """The lock of an image."""
    return read(ROOT / "deploy" / "locks" / f"{image}.lock")
