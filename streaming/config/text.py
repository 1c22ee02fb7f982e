"""A configuration as text that looks like TOML, and URLs without their credentials."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

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
    """Turn `http://user:secret@host/` into `http://user:********@host/`; query values are masked too.

    What is no URL is masked as a whole.
    """
    try:
        parts = urlsplit(url)  # not joined again with `urlunsplit`, which loses slashes of `sqlite:///…`
    except ValueError:
        return MASK
    userinfo, at, host = parts.netloc.rpartition("@")
    if at:
        user, colon, _ = userinfo.partition(":")
        url = url.replace(parts.netloc, f"{user}:{MASK}@{host}" if colon else f"{MASK}@{host}", 1)
    query = re.sub(r"=[^&]*", f"={MASK}", parts.query)
    return url.replace(f"?{parts.query}", f"?{query}", 1) if query else url
