"""An audit as Markdown for people and as JSON for programs.

Clients choose the names. In Markdown each name is cut, its unprintable characters are replaced, and characters that are
special in Markdown or HTML are escaped. In JSON names stay as they are.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from coordinator_model.wording import counted
from streaming.audit.meanings import MEANINGS

MAX_GROUPS_TOLD: Final = 50
"""Groups whose findings are shown in Markdown; JSON has all."""
MAX_NAME: Final = 100
MAX_TEXT: Final = 600
SPECIAL: Final = {character: f"\\{character}" for character in "\\`*_[]~#|!$"} | {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    "@": "&#64;",
}


@dataclass(frozen=True, slots=True)
class Report:
    """The content of the report; `notes` say what the audit could not see."""

    cluster: str
    groups: Sequence[Mapping[str, Any]]
    hosts: Sequence[tuple[str, int]]
    sources: Sequence[Mapping[str, Any]]
    share: float
    newest: str
    notes: Sequence[str] = field(default_factory=tuple)

    def as_json(self) -> str:
        """Return the contract's object, whose sources are called `tiers`."""
        told = {
            "cluster": self.cluster,
            "groups": self.groups,
            "tiers": self.sources,
            "hosts": [{"host": host, "returns": times} for host, times in self.hosts],
            "records": {"share_read": round(self.share, 4), "newest": self.newest},
            "notes": self.notes,
        }
        return json.dumps(told, ensure_ascii=True, indent=2) + "\n"

    def as_markdown(self) -> str:
        """Return the report for people."""
        troubled = [group for group in self.groups if group["findings"]]
        lines = [f"# Consumer groups of {escaped(self.cluster)}", "", *self._seen(len(troubled)), ""]
        if troubled:
            cut = f" {MAX_GROUPS_TOLD} of {len(troubled):,}" if len(troubled) > MAX_GROUPS_TOLD else ""
            lines += [
                f"## Groups with findings, the worst{cut or ' first'}",
                "",
                "| group | state | type | members | findings |",
                "| --- " * 5 + "|",
            ]
            lines += [_row(group) for group in troubled[:MAX_GROUPS_TOLD]]
            lines += ["", "## Findings", ""]
            for group in troubled[:MAX_GROUPS_TOLD]:
                lines += _told(group)
            if len(troubled) > MAX_GROUPS_TOLD:
                lines += [f"{len(troubled) - MAX_GROUPS_TOLD:,} more with findings: see `--json`.", ""]
        elif self.groups:
            lines += ["Nothing was found in any group, as far as the audit could see.", ""]
        if self.hosts:
            lines += ["## Hosts whose members left and came back", "", "| host | times |", "| --- | ---: |"]
            lines += [f"| {escaped(host)} | {times} |" for host, times in self.hosts]
            lines.append("")
        return "\n".join([*lines, *_meanings(troubled), *self._sources()])

    def _seen(self, troubled: int) -> list[str]:
        groups = f"{counted(len(self.groups), 'group')}, {troubled:,} with findings."
        notes = [f"\n> {escaped(note, MAX_TEXT)}" for note in self.notes]
        return [groups if self.groups else "There are no groups.", "", self._records(), *notes]

    def _records(self) -> str:
        if self.newest:
            read = f"{share_read(self.share)} of the offsets topic was read. Its newest record is of {self.newest}:"
            return f"{read} findings about the past end there. States and members are what the brokers report now."
        return "The offsets topic holds no record." if self.share == 1 else "No record of the offsets topic was read."

    def _sources(self) -> list[str]:
        lines = ["## What more could be known", "", "| source | here | tells | to get it |", "| --- " * 4 + "|"]
        for source in self.sources:
            here, how = ("yes", "") if source["has"] else ("no", f"`{source['command']}`")
            lines.append(f"| {source['tier']} | {here} | {source['adds']} | {how} |")
        return [*lines, ""]


def _meanings(troubled: Sequence[Mapping[str, Any]]) -> list[str]:
    rules = dict.fromkeys(finding["rule"] for group in troubled[:MAX_GROUPS_TOLD] for finding in group["findings"])
    if not rules:
        return []
    lines = ["## What the findings mean", "", "| finding | means | what helps |", "| --- " * 3 + "|"]
    return [*lines, *(f"| {rule} | {MEANINGS[rule][0]} | {MEANINGS[rule][1]} |" for rule in rules), ""]


def share_read(share: float) -> str:
    """Return a share in percent; 0% and 100% only if it is exactly that."""
    return f"{share:.0%}" if share in (0, 1) else f"{min(max(round(100 * share), 1), 99)}%"


def _row(group: Mapping[str, Any]) -> str:
    rules = ", ".join(dict.fromkeys(finding["rule"] for finding in group["findings"]))
    members = "unknown" if group["members"] is None else group["members"]
    return f"| {_named(group)} | {escaped(group['state'])} | {escaped(group['type'])} | {members} | {rules} |"


def _named(group: Mapping[str, Any]) -> str:
    return escaped(group["group"]) if group["group"].strip() else "(a group without a name)"


def _told(group: Mapping[str, Any]) -> list[str]:
    found = [f"- **{f['severity']}** {f['rule']}: {escaped(f['summary'], MAX_TEXT)}" for f in group["findings"]]
    return [f"### {_named(group)}", "", *found, ""]


def escaped(text: str, longest: int = MAX_NAME) -> str:
    """Return a client's text as one line that Markdown shows as it is."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    plain = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in cut)
    safe = "".join(SPECIAL.get(character, character) for character in plain)
    return safe.replace("://", ":&#47;/").replace("www.", "www&#46;")
