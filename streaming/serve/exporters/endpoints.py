"""`/metrics/kminion`, `/metrics/kafka-exporter`, `/metrics/burrow`: Prometheus scrapes one instead of that exporter.

The first two have no label for the cluster: if there are several clusters, `?cluster=` chooses one. A cluster whose
`run` makes no progress or catches up is not served, for its lags stand still: an alert about them would be silent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio.to_thread
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
SCRAPES_AT_ONCE: Final = 3
"""More wait, without one of the threads that answer everything else: a scrape that its scraper gave up goes on."""
_NAME_THE_CLUSTER: Final = frozenset({"burrow"})


@dataclass(frozen=True, slots=True)
class Exporters:
    """The endpoints, one per exporter."""

    store: Store
    health: Health
    turns: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, SCRAPES_AT_ONCE))

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route(f"/metrics/{name}", self._endpoint(name)) for name in EXPORTERS]

    def _endpoint(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        def made(request: Request) -> Exposition:
            return EXPORTERS[name](self._reading(request, several=name in _NAME_THE_CLUSTER))

        async def answer(request: Request) -> Response:
            async with self.turns:
                if await request.is_disconnected():
                    return Response(status_code=503)  # nobody waits for it any more
                exposition = await anyio.to_thread.run_sync(made, request)
            return StreamingResponse(iter(exposition), media_type=CONTENT_TYPE)

        return answer

    def _reading(self, request: Request, *, several: bool) -> Reading:
        runs = self.store.read.runs()
        cluster = request.query_params.get("cluster")
        asked = [run for run in runs if cluster in (None, run.cluster)]
        if cluster is not None and not asked:
            raise HTTPException(404, "no such cluster")
        alive = [run for run in asked if not self.health.stalled(run)]
        if len(alive) > 1 and not several:  # also if only one has caught up: else its groups would pass for the other's
            raise Ambiguous([run.cluster for run in alive], "groups")
        current = [run.cluster for run in alive if run.caught_up]
        if not current:
            raise HTTPException(503, f"not current: {self.health.readiness(asked)[1]['reason']}")
        return Reading(self.store, current)
