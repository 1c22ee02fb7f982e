"""Where a configuration file is wrong: file, line, key, and the key that was probably meant.

Neither `tomllib` nor pydantic knows line numbers once a file is parsed, so `key_lines` finds them again with a scan for
headers and keys. Inside an inline table or a value of several lines, the line is that of the enclosing key.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TomlPath = tuple[str | int, ...]

_BARE_OR_QUOTED = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_BARE_OR_QUOTED}(?:\s*\.\s*{_BARE_OR_QUOTED})*"
_HEADER = re.compile(rf"^\s*(\[\[?)\s*({_DOTTED})\s*\]\]?")
_KEY = re.compile(rf"^\s*({_DOTTED})\s*=")


class ConfigError(Exception):
    """The configuration cannot be used; the text names file and line and says what to do, one problem per line."""


def parse_toml(path: Path, text: str) -> dict[str, Any]:
    """Parse the text of a file; raises `ConfigError` with the line of a syntax error."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+), column \d+", str(error))
        line = int(place[1]) if place else len(text.splitlines())
        raise ConfigError(f"{path}:{line}: not TOML: {error}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or deeply nested tables
        raise ConfigError(f"{path}: not TOML that can be read: {error}") from None


def key_lines(text: str) -> dict[TomlPath, int]:
    """Return the 1-based line of every table and key of a valid TOML text; tables of an array have an index."""
    lines: dict[TomlPath, int] = {}
    counts: dict[TomlPath, int] = {}
    table: TomlPath = ()
    inside: str | None = None  # the quotes that will close a multi-line string
    for number, line in enumerate(text.split("\n"), start=1):
        if inside is None:
            if header := _HEADER.match(line):
                table = _indexed(_split(header[2]), counts, is_array=header[1] == "[[")
                lines.setdefault(table, number)
            elif key := _KEY.match(line):
                lines.setdefault((*table, *_split(key[1])), number)
        for quotes in ('"""', "'''"):
            if inside in (None, quotes) and line.count(quotes) % 2:
                inside = quotes if inside is None else None
    return lines


def line_of(path: TomlPath, lines: Mapping[TomlPath, int]) -> int:
    """Return the line of `path`, or of the nearest enclosing key or table in the file."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def did_you_mean(key: str, here: Iterable[str], elsewhere: Mapping[str, Iterable[str]]) -> str:
    """Return a hint: the nearest key of the same table, else a table that has exactly this key."""
    if near := difflib.get_close_matches(key, sorted(here), n=1, cutoff=0.6):
        return f'; did you mean "{near[0]}"?'
    if tables := sorted(name for name, keys in elsewhere.items() if key in keys):
        return f"; it belongs to [{tables[0]}]"
    return f"; known here: {', '.join(sorted(here))}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint: the nearest of the known names, if there is one."""
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def _split(dotted: str) -> TomlPath:
    """Split `a."b.c"` into ("a", "b.c"), using TOML's own parser."""
    parts: list[str] = []
    try:
        node: Any = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:  # no key, but a line inside a text whose quotes were misread
        return ()
    while isinstance(node, dict):
        ((part, node),) = node.items()
        parts.append(part)
    return tuple(parts)


def _indexed(path: TomlPath, counts: dict[TomlPath, int], *, is_array: bool) -> TomlPath:
    """Insert the index of the current element after each table array on the way."""
    result: TomlPath = ()
    for position, part in enumerate(path):
        result = (*result, part)
        if is_array and position == len(path) - 1:
            counts[result] = counts.get(result, -1) + 1
        if result in counts:
            result = (*result, counts[result])
    return result
