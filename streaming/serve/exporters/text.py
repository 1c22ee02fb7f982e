"""Prometheus' text format. It is written family by family, but groups are read one after the other.

A large cluster has millions of samples: those of a family that exceed `_IN_MEMORY_BYTES` are kept in a file.
"""

from collections.abc import Iterator, Mapping
from tempfile import SpooledTemporaryFile
from typing import Final, NamedTuple

from streaming.serve.lag_metrics import LAGS_WITHOUT_SERIES, labels_of
from streaming.serve.metrics import label

_IN_MEMORY_BYTES: Final = 4 * 2**20  # of one family
_LINES_AT_ONCE: Final = 5_000
_PIECE_BYTES: Final = 256 * 1024


class Family(NamedTuple):
    """A metric of another exporter: its labels in our order, its help text, and its type."""

    labels: tuple[str, ...]
    words: str
    kind: str = "gauge"


_LEFT_OUT: Final = Family(labels_of(LAGS_WITHOUT_SERIES), "Groups that are left out because there are too many.")


class Exposition:
    """The samples of an exporter's families, and how many groups were left out; it can be iterated only once."""

    def __init__(self, families: Mapping[str, Family], groups_left_out: int) -> None:
        self._families = {**families, LAGS_WITHOUT_SERIES: _LEFT_OUT}
        self._lines: dict[str, list[str]] = {name: [] for name in self._families}
        self._files = {name: SpooledTemporaryFile(_IN_MEMORY_BYTES) for name in self._families}  # noqa: SIM115
        self.add(LAGS_WITHOUT_SERIES, labelled(_LEFT_OUT.labels, "group"), groups_left_out)

    def add(self, name: str, labels: str, value: float) -> None:
        """Add a sample; `labels` come from `labelled`."""
        lines = self._lines[name]
        lines.append(f"{name}{{{labels}}} {value}\n")
        if len(lines) >= _LINES_AT_ONCE:
            self._write(name)

    def add_known(self, name: str, labels: str, value: float | None) -> None:
        """Add a sample if its value is known."""
        if value is not None:
            self.add(name, labels, value)

    def _write(self, name: str) -> None:
        self._files[name].write("".join(self._lines[name]).encode())
        self._lines[name].clear()

    def __iter__(self) -> Iterator[bytes]:
        for name, file in self._files.items():
            self._write(name)
            family = self._families[name]
            yield f"# HELP {name} {family.words}\n# TYPE {name} {family.kind}\n".encode()
            file.seek(0)
            while piece := file.read(_PIECE_BYTES):
                yield piece
            file.close()


def labelled(names: tuple[str, ...], *values: object) -> str:
    """Write labels. Values are cut like those of our own metrics."""
    return ",".join(f'{name}="{_escaped(str(value))}"' for name, value in zip(names, values, strict=True))


def _escaped(value: str) -> str:
    return label(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
