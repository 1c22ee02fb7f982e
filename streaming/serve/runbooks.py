"""The runbooks as HTML, one per rule: `/rules/<rule>` shows them, and alerts link to them.

They are our own text, so they are not escaped. `rules` is a link to `docs/rules`; the wheel contains a copy.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup

FOLDER: Final = Path(__file__).parent / "rules"
_INDEX: Final = "README"
RULES: Final = frozenset(path.stem for path in FOLDER.glob("*.md")) - {_INDEX}
_OTHER_PAGE: Final = re.compile(r"([a-z0-9-]+)\.md")


@cache
def runbook(rule: str) -> Markup:
    """Return the runbook of one of `RULES`."""
    return _html(rule)


@cache
def all_rules() -> Markup:
    """Return the list of all rules."""
    return _html(_INDEX)


def _html(name: str) -> Markup:
    markdown = MarkdownIt("commonmark").enable("table")
    markdown.add_render_rule("link_open", _link)
    return Markup(markdown.render((FOLDER / f"{name}.md").read_text(encoding="utf-8")))  # noqa: S704 - our own text


def _link(renderer: RendererHTML, tokens: Sequence[Token], number: int, options: OptionsDict, env: EnvType) -> str:
    """Render a link to another rule as a link to its page. Other links lose `href`: no other document is served."""
    attributes: dict[str, Any] = tokens[number].attrs
    if other := _OTHER_PAGE.fullmatch(str(attributes.pop("href"))):
        attributes["href"] = f"/rules/{other[1]}"
    return renderer.renderToken(tokens, number, options, env)
