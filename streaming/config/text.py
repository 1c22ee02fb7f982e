"""A configuration as text that looks like TOML, and URLs without their credentials."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

MASK = "********"

_DATABASE_LOGIN: Final = re.compile(r"(?!/)(?:[^:/@]*|[^:?@]*:[^@]*)@(?:[^?]*@)?")
"""As SQLAlchemy reads it: a password may contain `/`, `?` and `#`. It ends at the first `@`. A password with `@` in it
is wrong, but no part of it is printed. SQLite has no login: what follows `://` begins with `/`.
"""
_HTTP_LOGIN: Final = re.compile(r"[^/?#]*@|[^:/?#@[]*:(?!\d*(?:[/?#]|$))[^@]*@")
"""It ends before the first `/`, `?` or `#`. But what follows a colon and is no port is a password with one of them."""


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

    What is no URL is masked as a whole.
    """
    scheme, there, rest = url.partition("://")
    if not there:
        return MASK
    login = (_HTTP_LOGIN if scheme.lower() in ("http", "https") else _DATABASE_LOGIN).match(rest)
    user, colon, _ = login[0].partition(":") if login else ("", "", "")
    shown = f"{user if colon else ''}{colon}{MASK}@" if login else ""
    path, asked, query = rest[login.end() if login else 0 :].partition("?")
    values = "&".join(_masked_value(part) for part in query.split("&")) if asked else ""
    return f"{scheme}://{shown}{path}{asked}{values}"


def _masked_value(part: str) -> str:
    name, equals, _ = part.partition("=")
    return f"{name}={MASK}" if equals else MASK if part else ""
