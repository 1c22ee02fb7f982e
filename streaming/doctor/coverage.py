"""Which sources show the members of each group, as stored by `run`."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from streaming.config.settings import StoreSettings
from streaming.doctor.check import Check, ok, warn

NAME: Final = "coverage"
MAX_GROUPS: Final = 10
MAX_CHARACTERS: Final = 60
"""Of a group's id that are shown; its clients choose it."""


def check_coverage(settings: StoreSettings, cluster: str) -> Iterator[Check]:
    """Yield a line for each of the groups in the most trouble; none if `run` has stored nothing."""
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 # needs SQLAlchemy

    from streaming.store.database import read_only_engine  # noqa: PLC0415
    from streaming.store.reader import StoreReader  # noqa: PLC0415

    try:
        engine = read_only_engine(settings.connection_url())
        page = StoreReader(engine).groups(cluster=cluster, limit=MAX_GROUPS)
        groups = page.objects
    except (SQLAlchemyError, OSError):  # a file that is not there yet, or has no tables: `store` says so
        return
    for group in groups:
        yield _of_group(group)
    if page.total > len(groups):
        yield ok(NAME, f"and {page.total - len(groups):,} further groups: `/api/v1/groups` has them")


def _of_group(group: Mapping[str, Any]) -> Check:
    members, sources = group["members_total"], group.get("sources") or {}
    shown = ", ".join(f"{source} shows {count}" for source, count in sources.items())
    found = f"{str(group['group'])[:MAX_CHARACTERS]!r}: of {members} members {shown}"
    if members and not any(sources.values()):
        return warn(NAME, found, "their brokers ship no telemetry, or it stands still")
    return ok(NAME, found)
