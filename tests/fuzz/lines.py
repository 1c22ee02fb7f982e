"""One line of the request log, changed in one place or in a few."""

import base64
import json
from collections.abc import Iterator
from random import Random
from typing import Any

from tests.fuzz import values

PREFIX = b"Completed request:"
BLOBS = ("metadata", "assignment")
"""Names of fields that are base64."""


def mutated(raw: bytes, chance: Random) -> bytes:
    """Change a line: nearly always the structure of its JSON, sometimes its bytes."""
    if not raw.startswith(PREFIX) or chance.random() < 0.15:
        return _spoiled(raw, chance)
    line = json.loads(raw[len(PREFIX) :])
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        holder, key = chance.choice(list(_places(line)))
        _change(holder, key, chance)
    made = PREFIX + values.as_json(line).encode("utf-8", "surrogatepass")
    if chance.random() < 0.05:
        made = b"[2026-11-21T01:00:42,693] DEBUG " + made + b" (kafka.request.logger)"
    return made


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a JSON value: what holds it, and its name or index."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


def _change(holder: Any, key: Any, chance: Random) -> None:
    try:
        was = holder[key]
    except (KeyError, IndexError):
        return  # an earlier change removed it
    kind = chance.random()
    if kind < 0.12:
        del holder[key]
    elif kind < 0.22:
        holder[key] = values.other_type(chance, was)
    elif kind < 0.27 and isinstance(holder, list):
        holder += [was] * chance.choice([1, 3, 2_000])
    elif isinstance(was, bool) or was is None:
        holder[key] = values.other_type(chance, was)
    elif isinstance(was, int | float):
        holder[key] = values.number(chance, int(was))
    elif isinstance(was, str):
        holder[key] = _blob(was, chance) if key in BLOBS and chance.random() < 0.8 else values.text(chance)
    else:
        holder[key] = values.other_type(chance, was)


def _blob(was: str, chance: Random) -> str:
    """Change a subscription or an assignment, unless an earlier change has put a text in its place."""
    try:
        raw = bytearray(base64.b64decode(was))
    except ValueError:
        return values.text(chance)
    for _ in range(chance.choice([1, 1, 4])):
        if raw:
            raw[chance.randrange(len(raw))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    return base64.b64encode(bytes(raw[: chance.choice([len(raw), chance.randrange(len(raw) + 1)])])).decode()


def _spoiled(raw: bytes, chance: Random) -> bytes:
    """Cut, join, repeat or overwrite bytes."""
    at = chance.randrange(len(raw) + 1)
    kinds = (
        raw[:at],
        raw[at:],
        raw + raw,
        raw[:at] + bytes([chance.randrange(256)]) + raw[at + 1 :],
        raw[:at] + values.text(chance).encode("utf-8", "surrogatepass") + raw[at:],
        b"",
        b"\xff\xfe" + raw,
        PREFIX + b"[" * 100_000,
        PREFIX + b"{" * 100_000,
    )
    return chance.choice(kinds)
