"""How long each question about history takes with millions of rows: the questions that the API and the page ask.

One transaction of the real store is copied with other ids, straight into the tables: writing is measured elsewhere. One
in a hundred of all rows is of one group, the busiest; the others are spread over 10,000.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from sqlalchemy import Table, insert, literal, select, text

from streaming.config.settings import Settings
from streaming.store import Store, tables
from streaming.store.database import group_key
from streaming.store.reader import StoreReader
from tests.support import databases
from tests.support.outputs import CLUSTER, START_MS, ended, finding, report, view

GROUPS = 10_000
BUSIEST = "orders"
BUSIEST_EVERY = 100
OPEN_EVERY = 2_000
APART_MS = 1_000
AT_ONCE = 20_000
RUNS = 15

QUESTIONS: dict[str, Callable[[StoreReader, int], Any]] = {
    "generations of a group (API, page: 200)": lambda read, _: read.generations(CLUSTER, BUSIEST, 200),
    "last events of a group": lambda read, _: read.history(CLUSTER, BUSIEST, 2**52, 20),
    "… just before an instant in the middle (an alert)": lambda read, middle: read.history(
        CLUSTER, BUSIEST, middle, 20
    ),
    "incidents of a group, newest 200": lambda read, _: read.incidents(cluster=CLUSTER, group=BUSIEST, limit=200),
    "open incidents": lambda read, _: read.incidents(state="open"),
    "newest 1,000 incidents": lambda read, _: read.incidents(),
    "closed incidents, page 50 of 1,000": lambda read, _: read.incidents(state="closed", offset=49_000),
    "incidents of a rule": lambda read, _: read.incidents(rule="session-expired", limit=100),
    "incidents of a rule that never was": lambda read, _: read.incidents(rule="nonsense", limit=100),
    "pages that woke nobody (--would-have-paged)": lambda read, _: read.incidents(severity="page", told=False),
    "open by rule (/metrics)": lambda read, _: read.open_totals(),
    "open by group (/metrics)": lambda read, _: read.open_by_group(2_000),
    "what is firing (Alertmanager)": lambda read, _: read.firing(("warn", "page")),
}


def main(rows: int) -> None:
    """Fill SQLite, and PostgreSQL if it is installed, and print a row per question."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="group-monitor-bench-"))
        urls = {"SQLite": f"sqlite:///{folder}/monitor.db"}
        if (reason := databases.missing()) is None:
            urls["PostgreSQL"] = stack.enter_context(databases.server()).url
        else:
            print(f"without PostgreSQL: {reason}")
        measured = {name: _measure(url, rows) for name, url in urls.items()}
    print(f"| {rows:,} generations, {rows:,} incidents, {2 * rows:,} transitions; ms, p50 / max | {' | '.join(urls)} |")
    print(f"| --- |{' --- |' * len(urls)}")
    for question in QUESTIONS:
        print(f"| {question} | {' | '.join(times[question] for times in measured.values())} |")


def _measure(url: str, rows: int) -> dict[str, str]:
    store = Store.open(url)
    began_s = time.monotonic()
    _fill(store, rows)
    print(f"filled in {time.monotonic() - began_s:.0f} s", flush=True)
    times = {}
    for name, question in QUESTIONS.items():
        spans_ms = []
        for _ in range(RUNS):
            before_s = time.perf_counter()
            question(store.read, START_MS + rows * APART_MS // 2)
            spans_ms.append((time.perf_counter() - before_s) * 1_000)
        times[name] = f"{statistics.median(spans_ms):.1f} / {max(spans_ms):.1f}"
    store.close()
    return times


def _fill(store: Store, rows: int) -> None:
    settings = Settings(cluster=CLUSTER)
    for batch_id, outputs in enumerate(
        (
            [report(BUSIEST, finding(), view=view(members=3))],
            [report(BUSIEST, ended(finding(), START_MS + 900), view=view(generation=4, members=3))],
        )
    ):
        store.apply_batch(checkpoint_id="c", batch_id=batch_id, outputs=outputs, settings=settings)
    for table, make in ((tables.generations, _generations), (tables.incidents, _incidents)):
        _write(store, table, make(_sample(store, table), rows))
    _write_transitions(store)
    with store.engine.begin() as connection:
        connection.execute(text("ANALYZE"))


def _sample(store: Store, table: Table) -> dict[str, Any]:
    with store.engine.connect() as connection:
        row = connection.execute(select(table).limit(1)).mappings().one()
    return {name: value for name, value in row.items() if name != "id"}


def _write(store: Store, table: Table, rows: Iterator[dict[str, Any]]) -> None:
    portion: list[dict[str, Any]] = []
    for row in rows:
        portion.append(row)
        if len(portion) == AT_ONCE:
            with store.engine.begin() as connection:
                connection.execute(insert(table), portion)
            portion = []
    with store.engine.begin() as connection:
        connection.execute(insert(table), portion) if portion else None


def _group(number: int) -> str:
    return BUSIEST if number % BUSIEST_EVERY == 0 else f"group-{number % GROUPS}"


def _keys() -> dict[str, str]:
    return {name: group_key(CLUSTER, name) for name in {_group(number) for number in range(GROUPS * BUSIEST_EVERY)}}


def _generations(sample: dict[str, Any], rows: int) -> Iterator[dict[str, Any]]:
    keys = _keys()
    for number in range(1, rows + 1):
        at_ms = START_MS + number * APART_MS
        yield sample | {"group_key": keys[_group(number)], "generation": number + 10, "at_ms": at_ms}


def _incidents(sample: dict[str, Any], rows: int) -> Iterator[dict[str, Any]]:
    keys = _keys()
    for number in range(1, rows + 1):
        opened_ms, is_open = START_MS + number * APART_MS, number % OPEN_EVERY == 0
        yield sample | {
            "incident_id": f"{number:032x}",
            "group_key": keys[_group(number)],
            "group_id": _group(number),
            "rule": ("session-expired", "rebalance-timeout", "poll-exceeded")[number % 3],
            "severity": "page" if number % 50 == 0 else "warn",
            "notify": number % 7 != 0,
            "opened_ms": opened_ms,
            "closed_ms": None if is_open else opened_ms + 500,
        }


def _write_transitions(store: Store) -> None:
    """Write two transitions per incident, made by the database itself: they are most of the rows."""
    known, sample = tables.incidents.c, _sample(store, tables.transitions)
    names = ("incident_id", "group_key", "transition", "at_ms", "written_ms", "body")
    for after_ms in (0, 500):
        values = (literal(sample[name]) for name in ("written_ms", "body"))
        steps = select(
            known.incident_id, known.group_key, literal(sample["transition"]), known.opened_ms + after_ms, *values
        )
        with store.engine.begin() as connection:
            connection.execute(insert(tables.transitions).from_select(names, steps))
