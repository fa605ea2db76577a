"""Logging in and out, over HTTP. Each is made by our own page only, and logged with who it was, or who failed."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import SECOND

from stan import limits
from stan.monitor.guard import Guard
from stan.monitor.json_answer import json_answer
from stan.monitor.login.authentication import LOGIN, LOGOUT, VIEWER, Authentication, NotAdmittedError
from stan.monitor.login.viewer import Viewer

WRONG = "no such user, or a wrong password or token"


class LoginRoutes:
    """The routes of logins. *note*: called with a line for the log."""

    def __init__(self, guard: Guard, note: Callable[[str], None]) -> None:
        self._guard = guard
        self._authentication: Authentication = guard.authentication
        self._note = note

    def add_to(self, app: web.Application) -> None:
        """Add the paths to *app*."""
        app.router.add_post(LOGIN, self._log_in)
        app.router.add_post(LOGOUT, self._log_out)

    async def _log_in(self, request: web.Request) -> web.Response:
        if not self._authentication.has_logins:
            return json_answer({"error": "there are no logins here"}, 404)
        if refusal := self._guard.refuses_post(request.headers):
            return json_answer({"error": refusal}, 403)
        fields = await _fields(request)
        if fields is None:
            return json_answer({"error": "user and password, or token, are missing"}, 400)
        name, token = fields.get("user", ""), fields.get("token", "")
        address = request.remote or ""
        try:
            viewer = (
                self._authentication.log_in(address, token)
                if token
                else await self._authentication.log_in_by_password(address, name, fields.get("password", ""))
            )
        except NotAdmittedError as refused:
            self._note(f"Audit: login from {address} refused: {refused}")
            return json_answer({"error": str(refused)}, refused.status, refused.headers)
        if viewer is None:
            who = f"user {go_quote(name[: limits.LOGIN_NAME_CHARS_MAX])}" if name else "token"
            self._note(f"Audit: login from {address} failed: {who}")
            return json_answer({"error": WRONG}, 401)
        self._note(f"Audit: {go_quote(viewer.name)} has logged in from {address}")
        return self._with_session(request, viewer)

    def _with_session(self, request: web.Request, viewer: Viewer) -> web.Response:
        answer = json_answer({"user": viewer.name})
        secure = request.secure or request.headers.get("Origin", "").lower().startswith("https:")
        answer.set_cookie(
            self._authentication.cookie,
            self._authentication.begin(viewer),
            httponly=True,
            samesite="Strict",
            path="/",
            secure=secure,
        )
        return answer

    async def _log_out(self, request: web.Request) -> web.Response:
        if refusal := self._guard.refuses_post(request.headers):
            return json_answer({"error": refusal}, 403)
        self._authentication.end(request)
        self._note(f"Audit: {go_quote(request[VIEWER].name)} has logged out from {request.remote}")
        answer = json_answer({})
        answer.del_cookie(self._authentication.cookie, path="/")
        return answer


async def _fields(request: web.Request) -> Mapping[str, str] | None:
    """Return the texts of a login; None if they are none, too large, or do not come in time."""
    if (request.content_length or 0) > limits.LOGIN_BYTES_MAX:
        return None
    try:
        async with asyncio.timeout(limits.HTTP_HEAD_TIMEOUT / SECOND):
            body = await request.content.read(limits.LOGIN_BYTES_MAX + 1)
            while len(body) <= limits.LOGIN_BYTES_MAX and not request.content.at_eof():
                body += await request.content.read(limits.LOGIN_BYTES_MAX + 1 - len(body))
        fields: Any = json.loads(body) if len(body) <= limits.LOGIN_BYTES_MAX else None
    except (TimeoutError, ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        return None
    return fields
