"""The checker: it runs the suites over a sample and returns plain values. Importing it imports great-expectations."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import great_expectations as gx
import pandas as pd

from streaming.quality.sample import COLUMNS, Row
from streaming.quality.suites import suites

SAMPLE_ROWS: Final = 5
_TEXTS: Final = frozenset(
    {"cluster", "group", "type", "state", "member_id", "liveness", "group_key", "rule", "severity", "evidence"}
)


class ExpectationResult(NamedTuple):
    """The result of one expectation; `sample`: some of the rows that do not meet it."""

    cluster: str
    suite: str
    expectation: str
    success: bool
    unexpected: int
    sample: list[Row]


class Checker:
    """A checker that keeps great-expectations' context, so that a check costs only its rows."""

    def __init__(self, docs: Path | None = None) -> None:
        self._context = gx.get_context(mode="file", project_root_dir=docs) if docs else gx.get_context(mode="ephemeral")
        self._context.variables.progress_bars = {"globally": False}
        source = self._context.data_sources.add_or_update_pandas("monitor")
        self._definitions = {}
        for name, suite in suites().items():
            batch = source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("sample")
            kept = self._context.suites.add_or_update(suite)
            definition = gx.ValidationDefinition(name=name, data=batch, suite=kept)
            self._definitions[name] = self._context.validation_definitions.add_or_update(definition)

    def check(self, frames: Mapping[str, Sequence[Row]], cluster: str) -> list[ExpectationResult]:
        """Check every frame of one cluster."""
        return [verdict for name, rows in frames.items() for verdict in self._check(name, rows, cluster)]

    def docs(self) -> list[str]:
        """Write Data Docs of the last check; return the addresses of their first pages."""
        return [str(place) for place in self._context.build_data_docs().values()]

    def _check(self, name: str, rows: Sequence[Row], cluster: str) -> list[ExpectationResult]:
        frame = to_frame(name, rows)
        result = self._definitions[name].run(batch_parameters={"dataframe": frame})
        return [self._verdict(name, one, rows, cluster) for one in result.results]

    def _verdict(self, name: str, one: Any, rows: Sequence[Row], cluster: str) -> ExpectationResult:
        config = one.expectation_config
        failing = (one.result or {}).get("partial_unexpected_index_list") or []
        return ExpectationResult(
            cluster=cluster,
            suite=name,
            expectation=f"{config.type}({config.kwargs['column']})",
            success=bool(one.success),
            unexpected=int((one.result or {}).get("unexpected_count") or 0),
            sample=[rows[index] for index in failing[:SAMPLE_ROWS]],
        )


def to_frame(name: str, rows: Sequence[Row]) -> pd.DataFrame:
    """Make a frame with all columns. Columns of numbers are numeric even if values are missing."""
    frame = pd.DataFrame(rows, columns=list(COLUMNS[name]))
    for column in frame.columns:
        if column not in _TEXTS and column != "leader_is_member":
            frame[column] = pd.to_numeric(frame[column], errors="coerce")
    return frame
