"""The common part of the consumers that tests run as processes: commands on stdin, events as JSON lines on stdout.

They run as plain files, so that their start costs no import of the project, and import this file from their own folder.
"""

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable

Commands = queue.SimpleQueue[str]


def tell(event: str, **facts: object) -> None:
    """Write an event, with its instant."""
    print(json.dumps({"event": event, "at_ms": round(time.time() * 1000), **facts}), flush=True)


def listen() -> Commands:
    """Read commands from stdin from now on; when stdin ends, its writer is gone, and this process ends too."""
    commands: Commands = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            commands.put(line.strip())
        os._exit(3)

    threading.Thread(target=read, daemon=True).start()
    return commands


def go_on(work: Callable[[], None], commands: Commands, obey: Callable[[str, str], None], close: Callable[[], None]):
    """Work as an application's loop does, whatever fails, and obey commands, until the command `close`."""
    while True:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - it goes on, as an application's loop would
            tell("error", text=repr(error))
            time.sleep(0.2)
        while not commands.empty():
            verb, _, rest = commands.get().partition(" ")
            if verb == "close":
                close()
                tell("closed")
                return
            obey(verb, rest)


def listener(assigned: Callable[[list], None]) -> object:
    """Return a listener for kafka-python that reports what is revoked."""
    from kafka import ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: list) -> None:
            tell("revoked")

        def on_partitions_assigned(self, partitions: list) -> None:
            assigned(partitions)

    return Listener()
