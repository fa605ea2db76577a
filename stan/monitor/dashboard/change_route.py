"""The route of changes: only for our own page, for a person who may act, and with a line of the log for each."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from stan_protocol.scalars import SECOND

from stan import limits
from stan.errors import Refused
from stan.monitor.dashboard.api import Api
from stan.monitor.dashboard.audit import audit_line
from stan.monitor.dashboard.tables import BadQuestionError
from stan.monitor.dashboard.visible import NotAllowedError
from stan.monitor.guard import Guard
from stan.monitor.json_answer import json_answer
from stan.monitor.login.authentication import API, VIEWER

Make = Callable[[Api], Awaitable[web.StreamResponse]]
Fields = dict[str, Any]


class ChangeRoute:
    """The route of changes. *answered*: answers a request by what it is given; *note*: called with a line for the log."""

    def __init__(
        self,
        guard: Guard,
        answered: Callable[[web.Request, Make, int], Awaitable[web.StreamResponse]],
        note: Callable[[str], None],
    ) -> None:
        self._guard = guard
        self._answered = answered
        self._note = note

    def add_to(self, app: web.Application) -> None:
        """Add the path to *app*."""
        app.router.add_post(API + "actions/{name}", self._act)

    async def _act(self, request: web.Request) -> web.StreamResponse:
        if refusal := self._guard.refuses_change(request.headers, request[VIEWER]):
            if request[VIEWER].name:
                who, name = request[VIEWER].name, request.match_info["name"]
                self._note(audit_line(who, request.remote or "", name, {}, f"refused: {refusal}"))
            return json_answer({"error": refusal}, 403)
        fields = await _fields(request)
        if isinstance(fields, web.Response):
            return fields

        async def made(api: Api) -> web.Response:
            return json_answer(await self._made(request, api, fields))

        return await self._answered(request, made, 409)

    async def _made(self, request: web.Request, api: Api, fields: Fields) -> Fields:
        """Make the change, and write its outcome into the log."""
        name, outcome = request.match_info["name"], "it is not known if it was done"
        try:
            document = await api.act(name, fields)
            outcome = document["text"]
        except (BadQuestionError, NotAllowedError, Refused) as error:
            outcome = f"refused: {error}"
            raise
        finally:
            self._note(audit_line(request[VIEWER].name, request.remote or "", name, fields, outcome))
        return document


async def _fields(request: web.Request) -> Fields | web.Response:
    """Return the fields of a change, or the answer to a request that has none."""
    if (request.content_length or 0) > limits.DASHBOARD_ACTION_BYTES_MAX:
        return json_answer({"error": "the request is too large"}, 413)
    try:
        async with asyncio.timeout(limits.HTTP_HEAD_TIMEOUT / SECOND):
            fields = json.loads(await request.read())
    except TimeoutError:
        return json_answer({"error": "the request does not end"}, 408)
    except web.HTTPRequestEntityTooLarge:
        return json_answer({"error": "the request is too large"}, 413)
    except (ValueError, RecursionError):
        fields = None
    return fields if isinstance(fields, dict) else json_answer({"error": "a JSON object is missing"}, 400)
