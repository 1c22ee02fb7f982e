"""`docs/configuration.md` from the models that read a configuration: `python -m docs.generate.configuration_page`.

What a key means is the text below its field; type and default come from the field itself. What stands outside the
marked part of the page is written by people and is left alone.
"""

import ast
import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from coordinator_model.thresholds import Thresholds
from streaming.config.kafka import ENVIRONMENT_PREFIX
from streaming.config.settings import MOST, RECEIVERS, SECRET_KEYS, TABLES

PAGE = Path(__file__).parents[1] / "configuration.md"
HEADINGS = {"": "The top level", "groups": "`[[groups]]`, as many as wanted"}
WORDS = {
    str: "text",
    SecretStr: "secret",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    Path: "path",
}
UNITS = {"_ms": "ms", "_days": "days", "_ratio": "share, 0 to 1", "_rows": "rows"}
BEGIN = "<!-- keys, made from the code by `make docs` -->"
END = "<!-- end of keys -->"
MARKED = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)


def page() -> str:
    """The whole page as it should be."""
    return MARKED.sub(lambda _: f"{BEGIN}\n{keys()}\n{END}", PAGE.read_text(encoding="utf-8"))


def keys() -> str:
    """Every key, table by table."""
    parts = [_secrets()]
    for table, model in TABLES.items():
        docs = _docs(Thresholds if table == "thresholds" else model)
        fields = {name: field for name, field in model.model_fields.items() if not _is_table(name, table)}
        rows = [_row(name, field, docs[name], table) for name, field in fields.items()]
        parts.append("\n".join([f"## {_heading(table)}", "", _about(model, table), "", *_header(), *rows, ""]))
    return "\n".join(parts)


def _secrets() -> str:
    variables = [f"`{ENVIRONMENT_PREFIX}{name.upper()}`" for name in SECRET_KEYS.values()]
    keys = [f"`[{table}] {key}`" for table, key in SECRET_KEYS]
    rows = [f"| {key} | {variable} |" for key, variable in zip(keys, variables, strict=True)]
    return "\n".join(["| secret | variable |", "| --- | --- |", *rows, ""])


def _header() -> list[str]:
    return ["| key | type | unit | default | meaning |", "| --- | --- | --- | --- | --- |"]


def _heading(table: str) -> str:
    if table in RECEIVERS:
        return f'`[[notify]]` with `kind = "{table}"`'
    return HEADINGS.get(table, f"`[{table}]`")


def _is_table(name: str, table: str) -> bool:
    return table == "" and name in ("kafka", "run", "store", "serve", "quality", "thresholds", "groups", "notify")


def _about(model: type, table: str) -> str:
    if table == "":
        return "Keys before the first table."
    if table == "thresholds":
        return f"{inspect.getdoc(Thresholds)} For all groups; a `[[groups]]` block may have its own."
    return (inspect.getdoc(model) or "").partition("\n")[0]


def _docs(model: type) -> dict[str, str]:
    """The text below each field of a class and of the classes that it extends."""
    docs: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if cls.__module__.startswith(("streaming", "coordinator_model")):
            (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
            for field, text in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    docs[field.target.id] = " ".join(text.value.value.split()).replace("``", "`")
    return docs


def _row(name: str, field: FieldInfo, meaning: str, table: str) -> str:
    default = getattr(Thresholds(), name) if table == "thresholds" else field.get_default(call_default_factory=True)
    unit = next((words for end, words in UNITS.items() if name.endswith(end)), "")
    needed = table != "thresholds" and field.is_required()
    shown = "needed" if needed else _default(default)
    return f"| `{name}` | {_type(field)} | {unit} | {shown} | {meaning.replace('|', '&#124;')} |"


def _default(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "none"
    if isinstance(value, float):
        return f"`{value:.4g}`"
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value, default=str)}`"


def _type(field: FieldInfo) -> str:
    annotation, bounds = field.annotation, field.metadata
    if get_origin(annotation) in (Union, type(int | None)):  # an optional one
        (annotation,) = [part for part in get_args(annotation) if part is not type(None)]
    while hasattr(annotation, "__metadata__"):
        annotation, bounds = annotation.__origin__, [*bounds, *annotation.__metadata__]
    bounds = [inner for part in bounds for inner in (part.metadata if isinstance(part, FieldInfo) else [part])]
    return f"{_kind(annotation, bounds)}{_bounds(bounds)}"


def _kind(annotation: Any, metadata: list[Any]) -> str:
    validators = {getattr(getattr(part, "func", None), "__name__", "") for part in metadata}
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        element = get_args(annotation)[0]
        return f"list of {_kind(getattr(element, '__origin__', element), getattr(element, '__metadata__', []))}s"
    if get_origin(annotation) is dict:
        return "table of texts"
    if "_http_url" in validators:
        return "URL"
    if "_regex" in validators:
        return "regular expression"
    words = {
        str: "text",
        SecretStr: "secret",
        int: "whole number",
        float: "number",
        bool: "`true` or `false`",
        Path: "path",
    }
    return words.get(annotation, "table")


def _bounds(metadata: list[Any]) -> str:
    words = []
    for part in metadata:
        for name, text in (("gt", "more than"), ("ge", "at least"), ("le", "at most")):
            if (bound := getattr(part, name, None)) not in (None, MOST):  # the page says once that MOST is the limit
                words.append(f"{text} {bound:,}")
    return f", {', '.join(words)}" if words else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
