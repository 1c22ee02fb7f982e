"""The file map of `docs/architecture.md` names only files and folders that exist."""

import re
import subprocess
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
EXAMPLES = {"commands/<name>.py"}
SUFFIXES = (".py", ".md", ".xml", ".toml", ".java", ".json", ".yml", ".yaml")


def known_paths():
    """Return every tracked file and folder, and each with its leading folders left out."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = set()
    for line in listed.stdout.splitlines():
        path = PurePosixPath(line)
        for whole in (path, *path.parents):
            paths |= {"/".join(whole.parts[start:]) for start in range(len(whole.parts))}
    return paths


def test_every_path_of_the_file_map_exists():
    text = (ROOT / "docs" / "architecture.md").read_text()
    file_map = text.partition("## File map")[2].partition("\n## ")[0]
    quoted = set(re.findall(r"`([^`\n]+)`", file_map))
    paths = {name.rstrip("/") for name in quoted if name.endswith(SUFFIXES) or "/" in name} - EXAMPLES
    assert len(paths) > 150
    assert sorted(paths - known_paths()) == []
