"""Ends the brokers of a cluster whose owner is gone: `python watchdog.py OWNER_PID CLUSTER_FOLDER remove|keep`.

It is a separate process, because an owner killed with SIGKILL runs no handler. PR_SET_PDEATHSIG does not work: it fires
when the *thread* that started the broker ends. A child's parent changes the moment the owner is gone. After that, only
the pids in the cluster's `node-*/pid` files are trusted, which the owner removes when it ends a node itself.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path


def main(owner_pid: int, folder: Path, *, remove: bool) -> None:
    """Wait until the parent is no longer `owner_pid`, then kill what it left behind."""
    while os.getppid() == owner_pid:
        time.sleep(0.2)
    for pid_file in folder.glob("node-*/pid"):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(pid_file.read_text()), signal.SIGKILL)
        pid_file.unlink(missing_ok=True)
    if remove:
        time.sleep(0.5)  # a dying JVM may still create a file
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), remove=sys.argv[3] == "remove")
