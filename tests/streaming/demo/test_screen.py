"""What the demo shows, on a wide and on a narrow terminal."""

import io

import pytest
from rich.console import Console

from streaming.demo import screen
from streaming.demo.screen import Screen
from streaming.demo.verdict import MISSING, OK, Row

MEMBER = "payments-3-010ad6aa-f8c3-4772-bb10-18a7c3c6a13b"
ROWS = [
    Row("payments", "payments-3", MEMBER, "session-expired", 1_790_000_000_000, 1_790_000_000_017, OK),
    Row("shipping", "shipping-2", "wZR5B6ELRqeBSskZ8TmpGQ", "poll-exceeded", None, 1_790_000_000_000, MISSING),
]
GROUP = {
    "group": "payments",
    "type": "classic",
    "state": "PreparingRebalance",
    "generation": 7,
    "members": [{"client_id": f"payments-{n}", "heartbeat_headroom": h} for n, h in ((1, 0.9), (2, 0.1), (3, None))],
}
RULES = ["session-expired", "partition-unowned", "coordinator-unavailable", "coordinator-unavailable"]
INCIDENTS = [{"group": "payments", "rule": rule} for rule in RULES]


def printed(columns, show):
    """The lines of a terminal of that width."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=columns, color_system=None, highlight=False, emoji=False)
    show(Screen(console), console)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert max(map(len, lines)) <= columns
    return lines


@pytest.mark.parametrize("columns", [80, 100, 160])
def test_the_verdict_shows_every_member_and_time_whole(columns):
    lines = printed(columns, lambda made, _: made.verdict(ROWS))
    for words in (MEMBER, "session-expired", "+0.017 s", "wZR5B6ELRqeBSskZ8TmpGQ", "MISSING"):
        assert any(words in line for line in lines), words


def test_off_a_terminal_things_are_counted_in_a_line(capsys):
    made = Screen(Console(highlight=False, emoji=False))
    made._status_s = 0.0
    made.update([GROUP | {"members": GROUP["members"][:1]}], INCIDENTS[:1])
    line = capsys.readouterr().out.rstrip()
    assert line.endswith("payments PreparingRebalance generation 7, 1 member; 1 open incident")


@pytest.mark.parametrize("columns", [80, 100, 160])
def test_the_live_table_cuts_no_name_of_a_rule(columns):
    def show(_, console):
        wide = console.width >= screen.WIDE_COLUMNS
        console.print(screen._overview([GROUP], INCIDENTS, wide=wide))

    text = "\n".join(printed(columns, show))
    for words in ("1 session-expired", "1 partition-unowned", "2 coordinator-unavailable", "payments-3", "90%"):
        assert words in text
