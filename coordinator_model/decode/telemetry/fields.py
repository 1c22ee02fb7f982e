"""Typed access to untrusted JSON: every getter either returns the type it promises or raises ``BadField``."""

import json
from typing import Any

INT32 = 2**31
LATEST_MS = 2**53
"""A later instant (after the year 287396) is not valid."""
MAX_LINE_BYTES = 16 * 1024 * 1024
"""A longer line is rejected unread. A leader's JoinGroup answer in a group of 5,000 members is well below this size."""


class BadField(ValueError):
    """A field or a line that is not valid. The error's text is the reason that the quarantine shows."""


def _refuse_constant(name: str) -> float:
    raise BadField(f"not JSON: {name}")


def parse_object(text: str) -> dict[str, Any]:
    """Parse one JSON object. Anything else, however broken or deeply nested, raises ``BadField``."""
    try:
        parsed = json.loads(text, parse_constant=_refuse_constant)
    except BadField:
        raise
    except (ValueError, RecursionError) as error:
        raise BadField(f"not JSON: {type(error).__name__}") from error
    if not isinstance(parsed, dict):
        raise BadField("not a JSON object")
    return parsed


def a_dict(parent: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a nested object."""
    value = parent.get(name)
    if not isinstance(value, dict):
        raise BadField(f"{name}: not an object")
    return value


def a_list(parent: dict[str, Any], name: str) -> list[Any]:
    """Return an array, empty if it is absent or null: Kafka leaves out what a version does not have."""
    value = parent.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadField(f"{name}: not an array")
    return value


def a_str(parent: dict[str, Any], name: str) -> str:
    """Return a string, which must be present."""
    value = parent.get(name)
    if not isinstance(value, str):
        raise BadField(f"{name}: not a string")
    return clean(value)


def str_or_none(parent: dict[str, Any], name: str) -> str | None:
    """Return a string, or None if it is null or absent."""
    value = parent.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadField(f"{name}: not a string")
    return clean(value)


def an_int(parent: dict[str, Any], name: str, default: int | None = None, *, limit: int = INT32) -> int:
    """Return an integer in the range of Kafka's int32, or in that of ``limit``."""
    value = parent.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
        raise BadField(f"{name}: not an integer in range")
    return value


def a_duration_ms(parent: dict[str, Any], name: str) -> float:
    """Return a duration of the request log: a double of milliseconds, never negative, and less than some weeks."""
    value = parent.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < INT32:
        raise BadField(f"{name}: not a duration")
    return float(value)


def clean(text: str) -> str:
    """Replace lone surrogates, which JSON may contain and which cannot be encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
