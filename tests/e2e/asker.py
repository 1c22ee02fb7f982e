"""The brokers' own descriptions of groups, from Kafka's Admin client."""

import json
import subprocess
from collections.abc import Iterable
from typing import Any, Self

from tests.e2e.clients import java_program


class Asker:
    """`GroupTruth.java`, asked one question at a time."""

    def __init__(self, bootstrap: str) -> None:
        self._process = subprocess.Popen(
            java_program("GroupTruth", bootstrap),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, kind: str, group: str) -> dict[str, Any]:
        print(kind, group, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def every(self, groups: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return every answered group's state, epoch (KIP-848), and [topic, partition] pairs by member."""
        answer = self.ask("every", ",".join(groups))
        return {
            name: {
                "state": said["state"],
                "epoch": said["epoch"],
                "members": {m: sorted(v["assignment"]) for m, v in said["members"].items()},
            }
            for name, said in answer.items()
        }
