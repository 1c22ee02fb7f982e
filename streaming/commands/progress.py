"""The progress of a long command, on stderr: a bar on a terminal, else a line every few seconds."""

import time
from typing import Final, Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

LINE_EVERY_S: Final = 5.0
WIDE_COLUMNS: Final = 120
_BESIDE: Final = len(" 100% 0:00:00 ") + 1  # columns for the share, the time left, and a space before the text


class ProgressShown:
    """The progress of `what`. `total` has the unit in which `update` counts; None if it is not known."""

    def __init__(self, what: str, total: float | None = None, *, every_s: float | None = None) -> None:
        self._what = what
        self._total = total
        self._every_s = LINE_EVERY_S if every_s is None else every_s
        self._shown_s = time.monotonic()
        console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        self._bar: Progress | None = None
        if console.is_terminal:
            bar = 24 if console.width >= WIDE_COLUMNS else 10
            self._room = max(0, console.width - len(what) - bar - _BESIDE)
            known = (TaskProgressColumn(), TimeRemainingColumn()) if total is not None else ()
            columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=bar), *known)
            text = TextColumn("{task.fields[text]}", markup=False)
            self._bar = Progress(*columns, text, console=console, transient=True, redirect_stdout=False)
            self._task = self._bar.add_task(what, total=total, text="")

    def update(self, done: float, text: str) -> None:
        """Show how much is done. It is cheap enough to be called for every batch of rows."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, text=_cut(text, self._room))
            return
        now_s = time.monotonic()
        if now_s - self._shown_s >= self._every_s:
            self._shown_s = now_s
            share = f"{done / self._total:.0%}, " if self._total else ""
            click.echo(f"{self._what}: {share}{text}", err=True)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _cut(text: str, room: int) -> str:
    """Shorten a text; otherwise the bar before it would be shortened."""
    return text if len(text) <= room else f"{text[: max(0, room - 1)]}…"
