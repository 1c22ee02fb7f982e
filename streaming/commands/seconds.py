"""A number of seconds on the command line."""

import math
from typing import Any, Final

import click

LONGEST_S: Final = 366 * 86_400


class Seconds(click.FloatRange):
    """Seconds, a year at most: `time.sleep` takes no infinity, and no time that has passed is less than "nan"."""

    def __init__(self, least_s: float, *, min_open: bool = False) -> None:
        super().__init__(least_s, LONGEST_S, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Refuse "nan", which a range lets pass; exits as click does for wrong usage."""
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail("a number of seconds is needed", param, ctx)
        return seconds
