"""The route of searches: a line of JSON for each step, as the search goes on. A browser that leaves ends its search.

At most DASHBOARD_SEARCHES_MAX run at once; a further one is refused.
"""

import contextlib
from collections.abc import Awaitable, Callable

from aiohttp import web

from stan import limits
from stan.monitor.dashboard.api import Api
from stan.monitor.dashboard.failed_answers import ERRORS
from stan.monitor.guard import HEADERS
from stan.monitor.json_answer import encoded, json_answer
from stan.monitor.login.authentication import API

Make = Callable[[Api], Awaitable[web.StreamResponse]]


class SearchRoute:
    """The route of searches. *answered*: answers a request by the function that it is given."""

    def __init__(self, answered: Callable[[web.Request, Make], Awaitable[web.StreamResponse]]) -> None:
        self._answered = answered
        self.running = 0

    def add_to(self, app: web.Application) -> None:
        """Add the path to *app*."""
        app.router.add_get(f"{API}search", self._search)

    async def _search(self, request: web.Request) -> web.StreamResponse:
        async def made(api: Api) -> web.StreamResponse:
            if self.running >= limits.DASHBOARD_SEARCHES_MAX:
                return json_answer({"error": "enough searches are running: try again in a moment"}, 503)
            self.running += 1
            try:
                return await self._streamed(request, api)
            finally:
                self.running -= 1

        return await self._answered(request, made)

    async def _streamed(self, request: web.Request, api: Api) -> web.StreamResponse:
        search = await api.of_messages.search(request.query)
        kind = {"Content-Type": "application/x-ndjson", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers={**HEADERS, **kind})
        await response.prepare(request)
        try:
            async with contextlib.aclosing(search.steps()) as steps:
                async for step in steps:
                    await response.write(encoded(step) + b"\n")
        except ConnectionError:
            return response  # the browser has left
        except ERRORS as error:
            await response.write(encoded({"error": str(error)}) + b"\n")
        await response.write_eof()
        return response
