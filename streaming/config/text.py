"""A configuration as text that looks like TOML, and URLs without their credentials."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

MASK = "********"


def as_toml(tree: Mapping[str, Any], name: str = "") -> Iterator[str]:
    """Yield lines: plain values first, then tables and arrays of tables."""
    scalars = {key: value for key, value in tree.items() if not _is_table(value)}
    for key, value in scalars.items():
        yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
    for key, value in tree.items():
        full = f"{name}.{key}" if name else key
        if isinstance(value, dict) and value:
            yield from (f"[{full}]", *as_toml(value, full))
        elif _is_table(value):
            for element in value:
                yield from (f"[[{full}]]", *as_toml(element, full))


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def mask_url(url: str) -> str:
    """Turn `http://user:secret@host/` into `http://user:********@host/`; values of the query are masked, too.

    A password may contain `/`, `?` and `#`: SQLAlchemy takes it as it is. So everything up to the last `@` counts as
    part of it. What is no URL is masked as a whole.
    """
    scheme, there, rest = url.partition("://")
    if not there:
        return MASK
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    shown = f"{user}:{MASK}" if colon else MASK
    path, asked, query = place.partition("?")
    values = "&".join(_masked_value(part) for part in query.split("&")) if asked else ""
    return f"{scheme}://{shown if at else ''}{at}{path}{asked}{values}"


def _masked_value(part: str) -> str:
    name, equals, _ = part.partition("=")
    return f"{name}={MASK}" if equals else MASK if part else ""
