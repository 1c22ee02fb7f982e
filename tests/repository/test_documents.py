"""What the documents name exists: pages and headings, tests, commands with their options."""

import re
from pathlib import Path

import click
import pytest

from streaming.cli import main
from tests.oracle.perturb import PERTURBATIONS

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
SHOWN = {page: page.read_text() for page in PAGES}
PROSE = {page: re.sub(r"```.*?```", "", text, flags=re.DOTALL) for page, text in SHOWN.items()}


def name(page):
    return str(page.relative_to(ROOT))


def headings(page):
    """Return the anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", PROSE[page], re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def is_there(page, link):
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or anchor in headings(target))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", PROSE[page]) if not link.startswith("http")]
    assert [link for link in links if not is_there(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_named_tests_exist(page):
    """A name may be cut: `test_operator.py: test_of_very_many_…`."""
    named = re.findall(r"\b(test_\w+\.py)(?::\s+(test_\w+))?", PROSE[page])
    texts = {file: [path.read_text() for path in (ROOT / "tests").rglob(file)] for file, _ in named}
    assert [(file, test) for file, test in named if not any(f"def {test}" in text for text in texts[file])] == []


def commands():
    """Return the commands by their words, with their options."""
    found = {}
    for word, command in main.commands.items():
        subcommands = command.commands if isinstance(command, click.Group) else {}
        for path, each in ((word, command), *((f"{word} {sub}", each) for sub, each in subcommands.items())):
            found[path] = {option for parameter in each.params for option in parameter.opts} | {"--help"}
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_shown_options_exist(page):
    known = commands()
    longest_first = "|".join(sorted(known, key=len, reverse=True))
    shown = re.findall(rf"group-monitor ({longest_first})\b((?:\s[^`\n|]*)?)", SHOWN[page])
    options = [(command, option) for command, rest in shown for option in re.findall(r"\s(--[a-z0-9-]+)", rest)]
    assert [(command, option) for command, option in options if option not in known[command]] == []


def test_readme_counts_the_kinds_of_bad_telemetry():
    assert f"Tested with {len(PERTURBATIONS) - 1} kinds of bad telemetry" in SHOWN[ROOT / "README.md"]  # one is none
