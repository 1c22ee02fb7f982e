"""The real `run`, with Spark's progress of each batch written to a file: `python -m tests.benchmarks.watched_run`."""

import json
import signal
import sys
import threading
from pathlib import Path

from streaming.config.settings import load
from streaming.run.job import run_job


def main() -> None:
    config, out = Path(sys.argv[1]), Path(sys.argv[2])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with out.open("a") as file:
        run_job(load(config), stop, lambda progress: print(json.dumps(_brief(progress)), file=file, flush=True))


def _brief(progress: object) -> dict[str, object]:
    body = json.loads(progress.json)  # type: ignore[attr-defined]
    state = body["stateOperators"][0] if body["stateOperators"] else {}
    return {
        "batch": body["batchId"],
        "at": body["timestamp"],
        "rows": sum(source["numInputRows"] for source in body["sources"] if source["description"].startswith("Kafka")),
        "durations_ms": body["durationMs"],
        "state": {name: state.get(name) for name in ("memoryUsedBytes", "commitTimeMs", "allUpdatesTimeMs")},
    }


if __name__ == "__main__":
    main()
