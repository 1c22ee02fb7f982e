"""Processor time and memory of a process and all its descendants, by program, from /proc."""

import os
from pathlib import Path
from typing import NamedTuple

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """All processes of one program: processor seconds so far, and memory now."""

    cpu_s: float
    rss_bytes: int


def usage_of(root: int) -> dict[str, Usage]:
    """Return the usage of `root` ("driver") and its descendants, by program name."""
    children: dict[int, list[int]] = {}
    stats: dict[int, tuple[str, float, int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue  # it has just ended
        name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        cpu_s = (int(rest[11]) + int(rest[12]) + int(rest[13]) + int(rest[14])) / TICKS_A_SECOND
        stats[int(folder.name)] = (name, cpu_s, int(rest[21]) * PAGE_BYTES)
        children.setdefault(int(rest[1]), []).append(int(folder.name))
    found: dict[str, Usage] = {}
    todo = [root]
    while todo:
        process = todo.pop()
        todo += children.get(process, [])
        name, cpu_s, rss_bytes = stats.get(process, ("", 0.0, 0))
        name = "driver" if process == root else "workers" if name.startswith("python") else name
        before = found.get(name, Usage(0.0, 0))
        found[name] = Usage(before.cpu_s + cpu_s, before.rss_bytes + rss_bytes)
    return found
