"""`replay`: play a capture through the same model as the live job, without Kafka and Spark; print JSON Lines."""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import click

from coordinator_model.capture_replay import History, replay_rows
from coordinator_model.decode.source_row import SourceRow
from coordinator_model.incidents import Incident, Kind, to_contract
from coordinator_model.shard.shard import ShardSettings
from coordinator_model.states import Cause
from streaming.capture.file import OTHER_SOURCE, BadRow, open_text, position_bytes, read_rows
from streaming.client_metrics.otlp import read_metrics
from streaming.commands.progress import ProgressShown
from streaming.commands.settings import settings_of
from streaming.config.kafka import Kafka
from streaming.config.telemetry_zone import CaptureZone

SAMPLE = "sample.jsonl.gz"
REASONS_SHOWN = 5
ROWS_BETWEEN_LOOKS = 1_000


@click.command("replay")
@click.argument("capture", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--config",
    "config_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="monitor.toml: thresholds and session timeouts of groups.",
)
@click.option(
    "--cluster",
    default=None,
    help="The name of the cluster in the output.  [default: from --config, else 'default']",
)
@click.option("--sample", is_flag=True, help="Replay the capture that ships with the monitor, printed for reading.")
def replay_command(capture: Path | None, config_path: Path | None, cluster: str | None, sample: bool) -> None:
    """Replay CAPTURE (.jsonl or .jsonl.gz, made by `capture`) and print the results as JSON Lines.

    First come the incidents, in the order of the coordinator's time; then every group as it was at the end; then a
    summary. The exit code is 1 if no row could be read.
    """
    if (capture is None) == (not sample):
        raise click.UsageError("name a CAPTURE, or give --sample")
    settings, kafka = _settings(config_path, cluster)
    bad: list[BadRow] = []
    if capture is None:
        with resources.as_file(resources.files("streaming.demo") / SAMPLE) as shipped:
            _tell(_replay(shipped, settings, kafka, bad))
        return
    history = _replay(capture, settings, kafka, bad)
    for line in contract_lines(history, settings.cluster, bad):
        click.echo(json.dumps(line, ensure_ascii=True))
    if not history.decoded:
        raise click.ClickException(f"{capture}: {_nothing(history, bad)}")


def _settings(config_path: Path | None, cluster: str | None) -> tuple[ShardSettings, Kafka]:
    """Return the settings of the shards, and those of Kafka."""
    settings = settings_of(config_path)
    shard_settings = ShardSettings(
        cluster=cluster or settings.cluster,
        partitions=0,
        live_from_ms=0,
        thresholds=settings.default_thresholds(),
        group_thresholds=settings.group_thresholds(),
    )
    return shard_settings, settings.kafka


def _replay(path: Path, settings: ShardSettings, kafka: Kafka, bad: list[BadRow]) -> History:
    def rows() -> Iterator[SourceRow]:
        number = 0
        with open_text(path) as lines:
            for number, row in enumerate(read_rows(lines, kafka.client_telemetry_topics), start=1):
                if number % ROWS_BETWEEN_LOOKS == 0:
                    progress.update(position_bytes(lines), f"{number:,} rows read")
                if isinstance(row, SourceRow):
                    yield row
                else:
                    bad.append(row)
        progress.update(size_bytes, f"{number:,} rows read, replaying them")

    size_bytes, zone = path.stat().st_size, CaptureZone(kafka.telemetry_zone)
    try:
        with ProgressShown("replay", size_bytes) as progress:
            return replay_rows(zone.rows(rows()), settings, zone, read_metrics)
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be read to its end: {error}") from error


def contract_lines(history: History, cluster: str, bad: Collection[BadRow]) -> list[dict[str, Any]]:
    """Return the lines that `replay` prints: the contract's incident, group, blind-window and summary objects."""
    undecodable = dict(sorted(history.undecodable.items()))
    others = sum(str(row) == OTHER_SOURCE for row in bad)
    counts = {f"capture: {OTHER_SOURCE}": others, "capture: not a row": len(bad) - others}
    undecodable |= {reason: count for reason, count in counts.items() if count}
    summary = {
        "kind": "summary",
        "cluster": cluster,
        "rows": history.rows + len(bad),
        "decoded": dict(sorted(history.decoded.items())),
        "undecodable": undecodable,
        "coverage": history.coverage,
    }
    blind = [{"kind": "blind", **window} for window in history.blind]
    return [*map(to_contract, history.transitions), *history.groups, *blind, summary]


def _nothing(history: History, bad: list[BadRow]) -> str:
    """Say why no row of a capture could be read."""
    reasons = Counter(map(str, bad)) + history.undecodable
    if not reasons:
        return "no rows in it; is it a capture, and was there anything to capture?"
    shown = ", ".join(f"{reason} ({count:,})" for reason, count in reasons.most_common(REASONS_SHOWN))
    return f"none of its {reasons.total():,} rows could be read: {shown}; is it a capture? `capture` makes one"


def _why(incident: Incident) -> str:
    """Return the cause, if it is known, and whether it was observed or inferred."""
    return incident.evidence if incident.cause is Cause.UNKNOWN else f"{incident.cause}, {incident.evidence}"


def _tell(history: History) -> None:
    """Print a replay for people: the transitions in order, then the groups."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, emoji=False)
    start_ms = min((t.at_ms for t in history.transitions), default=0)
    for transition in history.transitions:
        incident = transition.incident
        end = f" ({incident.reason})" if incident.reason else ""
        head = f"{(transition.at_ms - start_ms) / 1000:7.1f} s  {transition.kind.value}{end}  {incident.severity}  "
        console.print(Text(head) + Text(f"{incident.rule}  {incident.group}", "bold"))
        if transition.kind is not Kind.CLOSED:
            console.print(Text(f"           {incident.summary} ({_why(incident)})"), soft_wrap=True)
    groups = Table(title="Groups at the end")
    has_lag = any(group["lag"] is not None for group in history.groups)
    for heading in ("group", "type", "state", "generation", "members", *(["lag"] if has_lag else [])):
        groups.add_column(heading)
    for group in history.groups:
        values = (group["group"], group["type"], group["state"], group["generation"], len(group["members"]))
        lag = "" if group["lag"] is None else f"{group['lag']:,}"
        groups.add_row(*(Text(str(value)) for value in values), *([lag] if has_lag else []))
    console.print(groups)
