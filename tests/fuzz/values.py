"""Values that nobody expects in their places."""

import json
from random import Random
from typing import Any

MARK = "<b id=fuzz>"
"""No page may contain this unescaped."""
RAW = "\x00raw:"
"""The prefix of the text of a number that Python would not write."""
NUMBERS = [0, -0, 1, -1, 2, 79, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**63 - 1, 2**63, -(2**63), 10**30]
RAW_NUMBERS = ["1e999", "-1e999", "NaN", "Infinity", "1" * 400, "-" + "9" * 5_000, "1" * 5_000, "0.1e-400", "1E5", "00"]
TEXTS = [
    "", " ", "\0", "\n", "\r\n\t", "\x1b[31m", "\u2028", "\u2029", "\u0085", "\u202egnp", "\ufeff", "\uffff", "\ud800",
    "\udfff\ud800", "\U0001f480" * 9, "a" * 300, "x" * 32_767, "é" * 16_000, "\0" * 2_000, MARK,
    f"'{MARK}\"</script><script>alert(1)</script>", "'; DROP TABLE incidents; --", "../../etc/passwd", "%s %n {0}",
    "${jndi:ldap://x}", "\\", '"', '\\"', "__proto__", "probe-" + "7" * 5_000, "-1", "null", "group-monitor-probe", "/",
    ".", "..", "quarantine", "017", "017.2", "kind:name", 'a="b",c="', "# HELP x", "\\n# TYPE", "\\ud800",
]  # fmt: skip


def text(chance: Random) -> str:
    """A text that a stranger might choose."""
    chosen = chance.choice(TEXTS)
    return chosen if chance.random() < 0.8 else chosen[: chance.randrange(40)] + chance.choice(TEXTS)[:40]


def name(chance: Random) -> str:
    """A name as Kafka takes one: not empty, at most 32,767 bytes of UTF-8."""
    made = text(chance).encode("utf-8", "replace")[:30_000].decode("utf-8", "replace")
    return made or "empty"


def number(chance: Random, near: int = 0) -> Any:
    """Return a number: huge, negative, next to the old one, or one that Python does not write."""
    kind = chance.random()
    if kind < 0.2:
        return RAW + chance.choice(RAW_NUMBERS)
    if kind < 0.4:
        return near + chance.choice([-1, 1, 2, 1_000, -1_000])
    return chance.choice(NUMBERS)


def other_type(chance: Random, was: Any) -> Any:
    """A value of another JSON type."""
    deep: Any = []
    for _ in range(chance.choice([3, 200])):
        deep = [deep]
    kinds = [None, True, False, 0, 1.5, "", str(was)[:50], [], {}, [was], {"a": was}, deep, number(chance)]
    return chance.choice(kinds)


def as_json(value: Any) -> str:
    """Write JSON; lone surrogates as escapes, and raw numbers as they are."""
    written = json.dumps(value, separators=(",", ":"))
    parts = written.split('"' + json.dumps(RAW)[1:-1])
    return parts[0] + "".join(part.replace('"', "", 1) for part in parts[1:])
