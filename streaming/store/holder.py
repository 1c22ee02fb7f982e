"""A process as the holder of a lease: a name that no other process has, and whether that process is gone."""

import hashlib
import os
import secrets
from pathlib import Path


def process_name() -> str:
    """Return a name for this process, a different one at every call."""
    return f"{machine()}/{os.getpid()}/{secrets.token_hex(8)}"


def machine() -> str:
    """Return a name for this boot of this machine and its process namespace; a random one if they are not known."""
    try:
        told = Path("/proc/sys/kernel/random/boot_id").read_text() + str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return secrets.token_hex(8)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def is_gone(holder: str) -> bool:
    """Tell whether a holder was a process of this machine that has ended."""
    where, _, rest = holder.partition("/")
    pid = rest.partition("/")[0]
    if where != machine() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
