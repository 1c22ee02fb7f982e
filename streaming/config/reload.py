"""Reloading the configuration while the process runs: if the new one is not valid, the old one stays."""

from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import Final

from streaming.config.settings import ConfigError, Settings, load

RUN_FIXED: Final = (
    "cluster", "kafka", "store.url", "store.password", "run.data_folder", "run.master", "run.operator_key",
    "run.shard_split", "run.shuffle_partitions",
)  # fmt: skip
"""The settings that the job's session, readers and checkpoint were made with."""
SERVE_FIXED: Final = (
    "store.url", "store.password", "serve.host", "serve.port", "serve.tls_certfile", "serve.tls_keyfile",
)  # fmt: skip
"""The settings that the server was started with."""


def reread(path: Path, current: Settings, fixed: Iterable[str]) -> Settings:
    """Return the settings that are now in the file; raises `ConfigError` if they are wrong or need a restart."""
    fresh = load(path)
    if changed := [name for name in fixed if _value(fresh, name) != _value(current, name)]:
        raise ConfigError(f"{path}: {', '.join(changed)} changed: that needs a restart")
    return fresh


def _value(settings: Settings, name: str) -> object:
    return reduce(getattr, name.split("."), settings)
