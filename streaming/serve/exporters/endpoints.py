"""`/metrics/kminion`, `/metrics/kafka-exporter`, `/metrics/burrow`: Prometheus scrapes one instead of that exporter.

The first two have no label for the cluster: if there are several clusters, `?cluster=` chooses one. A cluster whose
`run` makes no progress is not served, for its lags stand still: without it an alert about lag would be silent for ever.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from streaming.serve.api import Ambiguous
from streaming.serve.exporters import burrow, kafka_exporter, kminion
from streaming.serve.exporters.reading import Reading
from streaming.serve.exporters.text import Exposition
from streaming.serve.health import Health
from streaming.store import Store

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
EXPORTERS: Final[Mapping[str, Callable[[Reading], Exposition]]] = {
    "kminion": kminion.exposition,
    "kafka-exporter": kafka_exporter.exposition,
    "burrow": burrow.exposition,
}
_NAME_THE_CLUSTER: Final = frozenset({"burrow"})


@dataclass(frozen=True, slots=True)
class Exporters:
    """The endpoints, one per exporter."""

    store: Store
    health: Health

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route(f"/metrics/{name}", self._endpoint(name)) for name in EXPORTERS]

    def _endpoint(self, name: str) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            made = EXPORTERS[name](self._reading(request, several=name in _NAME_THE_CLUSTER))
            return StreamingResponse(iter(made), media_type=CONTENT_TYPE)

        return answer

    def _reading(self, request: Request, *, several: bool) -> Reading:
        runs = self.store.read.runs()
        cluster = request.query_params.get("cluster")
        asked = [run for run in runs if cluster in (None, run.cluster)]
        if cluster is not None and not asked:
            raise HTTPException(404, "no such cluster")
        current = [run for run in asked if not self.health.stalled(run)]
        if not current:
            raise HTTPException(503, f"not current: {self.health.readiness(asked)[1]['reason']}")
        clusters = [run.cluster for run in current]
        if len(clusters) > 1 and not several:
            raise Ambiguous(clusters, "groups")
        return Reading(self.store, clusters, all(run.caught_up for run in current))
