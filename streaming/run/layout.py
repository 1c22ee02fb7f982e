"""The settings that a checkpoint was made with, in a file beside it.

Spark refuses, or worse misreads, a checkpoint if the key, the number of shuffle partitions or the state format has
changed. So the job compares them before it starts: a checkpoint that no longer fits is kept aside, a fresh one begins,
and it adopts the open incidents of the store, because an incident's identity does not depend on the checkpoint. Only
the newest of those kept aside stays.
Topics may come and go: a single reader of all topics tolerates that.
"""

import fcntl
import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from coordinator_model.shard import snapshot
from streaming.run.errors import RunError
from streaming.run.replaced_file import write_atomically

LAYOUT_FILE = "layout.json"


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything that must be unchanged for the job to resume a checkpoint."""

    cluster: str
    offsets_topic: str
    offsets_partitions: int
    operator_key: str
    shard_split: int
    shuffle_partitions: int
    state_version: int
    query_version: int
    offsets_topic_id: str = ""
    """It changes if the topic is recreated. Empty: not known, and then not compared."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint and what is remembered about it."""

    checkpoint_id: str
    folder: Path
    live_from_ms: int
    """Coordinator time from which on this checkpoint raises incidents; older ones were history when it began."""
    resumed: bool
    changes: tuple[str, ...] = ()
    """Why an older checkpoint could not be resumed."""

    @property
    def committed(self) -> bool:
        """Whether a batch of it was ever finished."""
        return any((self.folder / "commits").glob("[0-9]*"))


def open_checkpoint(
    data_folder: Path, layout: Layout, live_from_ms: Callable[[], int], because: tuple[str, ...] = ()
) -> Checkpoint:
    """Return the checkpoint to resume, or a fresh one; record its layout in the layout file.

    `live_from_ms` is called for a fresh checkpoint only. `because`: why the existing one cannot be resumed.
    """
    data_folder.mkdir(parents=True, exist_ok=True)
    file = data_folder / LAYOUT_FILE
    try:
        known = _read(file)
        changes = (*_changes(known, layout), *because) if known else ()
    except ValueError as error:
        known, changes = None, (str(error),)
    if known and not changes:
        if known["layout"] != asdict(layout):  # the id of the offsets topic is known now, or the state migrates
            known["layout"] |= {name: value for name, value in asdict(layout).items() if value != ""}
            write_atomically(file, json.dumps(known, indent=2) + "\n")
        folder = data_folder / known["checkpoint_id"]
        return Checkpoint(known["checkpoint_id"], folder, known["live_from_ms"], resumed=True)
    _delete_all_but_newest(data_folder)
    checkpoint_id, from_ms = f"checkpoint-{uuid.uuid4().hex[:12]}", live_from_ms()
    content = {"checkpoint_id": checkpoint_id, "live_from_ms": from_ms, "layout": asdict(layout)}
    write_atomically(file, json.dumps(content, indent=2) + "\n")
    return Checkpoint(checkpoint_id, data_folder / checkpoint_id, from_ms, resumed=False, changes=changes)


def remembered_shuffle_partitions(data_folder: Path) -> int | None:
    """Return the number that the checkpoint was made with, so that a machine with more cores can resume it."""
    try:
        known = _read(data_folder / LAYOUT_FILE)
    except ValueError:
        return None
    return known["layout"].get("shuffle_partitions") if known else None


def retire_checkpoint(data_folder: Path) -> None:
    """Make the next checkpoint a fresh one; the folder of the current one stays."""
    (data_folder / LAYOUT_FILE).unlink(missing_ok=True)


@contextmanager
def locked(data_folder: Path) -> Iterator[None]:
    """Keep a second `run` out of the same data folder; the lock is released when the process ends, however it ends."""
    with ExitStack() as stack:
        try:
            data_folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((data_folder / "lock").open("a"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"another run works in {data_folder}: give each its own [run] data_folder") from None
        except OSError as error:  # not writable, or a file system without locks
            raise RunError(
                f"{data_folder} cannot be used: {error.strerror}; choose another [run] data_folder"
            ) from None
        yield


def _delete_all_but_newest(data_folder: Path) -> None:
    """Keep one retired checkpoint, for whoever looks for the cause; each takes half a gigabyte and more."""
    folders = sorted(data_folder.glob("checkpoint-*"), key=lambda folder: folder.stat().st_mtime_ns)
    for folder in folders[:-1]:
        shutil.rmtree(folder, ignore_errors=True)


def _read(file: Path) -> dict[str, Any] | None:
    """Return the file's content, or None if there is no file; raises `ValueError` if it cannot be read."""
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
        return {
            "checkpoint_id": str(known["checkpoint_id"]),
            "live_from_ms": int(known["live_from_ms"]),
            "layout": dict(known["layout"]),
        }
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} cannot be read ({type(error).__name__}: {error})") from None


def _changes(known: dict[str, Any], layout: Layout) -> tuple[str, ...]:
    before = known["layout"]
    return tuple(
        f"{field.name}: {before.get(field.name)} -> {getattr(layout, field.name)}"
        for field in fields(layout)
        if before.get(field.name) != getattr(layout, field.name) and not _may_differ(field.name, before, layout)
    )


def _may_differ(name: str, before: dict[str, Any], layout: Layout) -> bool:
    """Tell whether a difference does no harm: an unknown id, or a state format that can be read and migrated."""
    if name == "state_version":
        return layout.state_version == snapshot.VERSION and before.get(name) in snapshot.READABLE
    return name == "offsets_topic_id" and "" in (before.get(name, ""), layout.offsets_topic_id)
