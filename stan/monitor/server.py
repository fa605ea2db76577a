"""The HTTP server of the pages: its routes, and errors in the words of NATS Streaming Server.

Promises: the server listens before the store is opened, so that health can be checked meanwhile; a port in use ends the
start; a page that fails is logged and affects no other page. Pages that are not ours are fetched from the embedded nats-server,
whose paths stay as they were. Only the dashboard can change anything, if its actions are switched on.
"""

import logging
import os
import posixpath
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, cast

import aiohttp
from aiohttp import web
from stan_protocol.scalars import SECOND, WallNanos

from stan import limits
from stan.config import MonitorConfig
from stan.edge.log import ServerLog
from stan.edge.nats.password_check import is_password
from stan.errors import StartError
from stan.monitor import health
from stan.monitor.dashboard.routes import Dashboard
from stan.monitor.guard import CORS, Guard, Handler, readable_by_all
from stan.monitor.legacy_metrics import legacy_metrics
from stan.monitor.listener import Listener
from stan.monitor.login.authentication import Authentication
from stan.monitor.login_routes import LoginRoutes
from stan.monitor.metrics import exposition, metrics
from stan.monitor.page_format import pretty
from stan.monitor.pages import Pages, Query, UnknownNameError
from stan.monitor.view import NodeView

ROOT = "/streaming"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LEGACY = "nss"
"""The prefix of the metrics of prometheus-nats-exporter for NATS Streaming."""
INDEX = """<html lang="en">
  <head><title>NATS Streaming Server</title></head>
  <body>
    <p><a href="/streaming/serverz">server</a></p>
    <p><a href="/streaming/storez">store</a></p>
    <p><a href="/streaming/clientsz">clients</a></p>
    <p><a href="/streaming/channelsz">channels</a></p>
    <p><a href="/dashboard/">dashboard</a></p>
    <p><a href="/metrics">metrics</a> <a href="/healthz/ready">health</a></p>
  </body>
</html>
"""
_NOT_PASSED: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "upgrade", "date", "content-length", CORS.lower()}
)
"""Headers of nats-server's that belong to one connection and not to a page, or that are ours to decide."""


class Server:
    """The HTTP server of one node."""

    def __init__(self, view: NodeView, config: MonitorConfig, log: ServerLog, wall: Callable[[], WallNanos]) -> None:
        self._view = view
        self._config = config
        self._log = log
        self._wall = wall
        self._pages = Pages(view)
        self._guard = Guard(config, Authentication(view.config, self._is_password))
        self._dashboard = Dashboard(view, self._guard, log.error, log.info)
        self._logins = LoginRoutes(self._guard, log.info)
        self._listener: Listener | None = None
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.port = 0

    async def open(self) -> None:
        """Listen. Raises StartError."""
        config = self._config
        where = f"[{config.host}]:{config.port}" if ":" in config.host else f"{config.host}:{config.port}"
        tls = _tls(config) if config.secure else None
        # aiohttp logs nothing: malformed requests of strangers are no news, and _survive reports failures of pages.
        silent = logging.getLogger("stan.monitor")
        silent.propagate, silent.disabled = False, True
        idle = limits.HTTP_HEAD_TIMEOUT / SECOND  # also for the head of the first request
        runner = self._runner = web.AppRunner(
            self._application(), access_log=None, logger=silent, shutdown_timeout=1.0, keepalive_timeout=idle
        )
        await runner.setup()
        try:
            listener = Listener(cast("web.Server", runner.server), tls, self._dashboard.streams)
            self.port = await listener.open(config.host, max(config.port, 0))
            self._listener = listener
        except (OSError, OverflowError) as error:
            await self.close()
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number) if number is not None and number > 0 else str(error)
            raise StartError(f"unable to start monitoring server on {where}: {reason.lower()}") from error
        scheme = "https" if config.secure else "http"
        self._view.pages = f"{scheme}://{where.rpartition(':')[0]}:{self.port}"
        if config.dashboard_actions and config.logins is None:
            self._log.warning(f"Whoever reaches {where} may change things there: --dashboard_actions is on")
        self._log.info(f"Starting {scheme} monitor on {where.rpartition(':')[0]}:{self.port}")
        near = "127.0.0.1" if config.host in ("", "0.0.0.0", "::") else where.rpartition(":")[0]  # noqa: S104 - a question
        self._log.info(f"Dashboard: {scheme}://{near}:{self.port}/dashboard/")

    async def close(self) -> None:
        """Stop listening and close all connections."""
        await self._dashboard.close()
        if self._session is not None:
            await self._session.close()
        if self._listener is not None:
            await self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _is_password(self, user: str, password: str) -> bool:
        """Return True if NATS takes this password."""
        config, embedded = self._view.config.nats, self._view.embedded
        urls = config.urls or (() if embedded is None else (embedded.url,))
        return bool(urls) and await is_password(config, urls, user, password)

    def _application(self) -> web.Application:
        app = web.Application(middlewares=[self._survive, self._guard.admit])
        pages: dict[str, Callable[[Query, WallNanos], Awaitable[str]]] = {
            "serverz": self._pages.serverz,
            "storez": self._pages.storez,
            "clientsz": self._pages.clientsz,
            "channelsz": self._pages.channelsz,
        }
        for name, made in pages.items():
            app.router.add_route("*", f"{ROOT}/{name}", self._page(made))
        app.router.add_route("*", ROOT, self._index)
        app.router.add_route("*", f"{ROOT}/", self._index)
        app.router.add_route("*", f"{ROOT}/isFTActive", self._is_ft_active)
        for name, reasons in (("live", health.live), ("startup", health.startup), ("ready", health.ready)):
            app.router.add_route("*", f"/healthz/{name}", self._health(reasons))
        app.router.add_route("*", "/metrics", self._metrics)
        self._logins.add_to(app)
        self._dashboard.add_to(app)
        app.router.add_route("*", "/{path:.*}", self._of_nats)
        return app

    @web.middleware
    async def _survive(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except UnknownNameError as error:
            return _plain(404, str(error))
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - a page is not worth the broker
            self._log.error(f"Error making the page {request.path}: {type(error).__name__}: {error}")
            return _plain(500, f"Error making this page: {error}")

    # --- ours -------------------------------------------------------------------------------------------------------------

    def _page(self, made: Callable[[Query, WallNanos], Awaitable[str]]) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            text = await made(request.query, self._wall())
            callback = request.query.get("callback", "")
            kind = "application/javascript" if callback else "application/json"
            body = f"{callback}({text})" if callback else text
            return web.Response(
                body=body.encode("utf-8", "replace"), headers={"Content-Type": kind, **_readers(request)}
            )

        return answer

    async def _index(self, _request: web.Request) -> web.Response:
        return web.Response(text=INDEX, content_type="text/html", charset="utf-8")

    async def _is_ft_active(self, _request: web.Request) -> web.Response:
        return web.Response(status=200 if self._pages.state() == "FT_ACTIVE" else 204)

    def _health(self, reasons_of: Callable[[NodeView], list[str]]) -> Handler:
        async def answer(_request: web.Request) -> web.Response:
            reasons = reasons_of(self._view)
            body = pretty({"status": "unavailable" if reasons else "ok", "reasons": reasons})
            return web.Response(status=503 if reasons else 200, text=body, content_type="application/json")

        return answer

    async def _metrics(self, request: web.Request) -> web.Response:
        legacy = request.query.get("legacy", "")
        if legacy not in ("", LEGACY):
            return _plain(400, f"legacy={legacy}: only {LEGACY} is known, the names of prometheus-nats-exporter")
        if legacy:
            body = await exposition(await legacy_metrics(self._pages, self._view.pages, self._wall()))
        else:
            body = await metrics(self._view, request.query.getall("channel", []), self._wall())
        return web.Response(body=body, headers={"Content-Type": METRICS_TYPE})

    # --- nats-server's ------------------------------------------------------------------------------------------------------

    async def _of_nats(self, request: web.Request) -> web.StreamResponse:
        """A page of the embedded nats-server, as it is."""
        embedded = self._view.embedded
        pages = None if embedded is None else embedded.pages
        target = request.raw_path  # that begins otherwise would name another server
        if (cleaned := _cleaned(target)) != target:
            return web.Response(status=301, headers={"Location": cleaned, **_readers(request)})
        if (
            embedded is None
            or request.path.startswith(f"{ROOT}/")
            or not target.startswith("/")
            or _cleaned(request.path) != request.path  # written so that it is another path only once it is decoded
        ):
            return _plain(404, "404 page not found")
        if pages is None:
            return _plain(503, "nats-server does not run")
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=limits.PAGES_TIMEOUT / SECOND)
            self._session = aiohttp.ClientSession(
                auto_decompress=False, timeout=timeout, connector=aiohttp.TCPConnector(limit=limits.HTTP_NATS_PAGES_MAX)
            )
        url = f"http://{pages[0]}:{pages[1]}{target}"
        passed = {name: request.headers[name] for name in ("Accept", "Accept-Encoding") if name in request.headers}
        try:
            method = "HEAD" if request.method == "HEAD" else "GET"
            answer = await self._session.request(method, url, headers=passed, allow_redirects=False)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return _plain(502, f"nats-server does not answer: {error or type(error).__name__}")
        async with answer:
            headers = {name: text for name, text in answer.headers.items() if name.lower() not in _NOT_PASSED}
            headers |= _readers(request)
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
        await response.write_eof()
        return response


def _readers(request: web.Request) -> dict[str, str]:
    """Return headers by which browsers decide if pages of other sites may read this one, as JSON or by a callback."""
    if readable_by_all(request.path, request.query):
        return {CORS: "*"}
    return {"Cross-Origin-Resource-Policy": "same-origin", "X-Content-Type-Options": "nosniff"}


def _cleaned(target: str) -> str:
    """*target* without empty and dotted parts of its path, as the original redirects to it; beginning with one slash."""
    path, mark, query = target.partition("?")
    if not path.startswith("/"):
        return target
    cleaned = posixpath.normpath(f"/{path.lstrip('/')}")
    return f"{cleaned}{'/' if path.endswith('/') and cleaned != '/' else ''}{mark}{query}"


def _plain(status: int, text: str) -> web.Response:
    """An error as Go's http.Error words it."""
    headers = {"X-Content-Type-Options": "nosniff"}
    return web.Response(status=status, text=f"{text}\n", content_type="text/plain", charset="utf-8", headers=headers)


def _tls(config: MonitorConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(str(config.certificate), str(config.key))
    except OSError as error:  # also those of ssl
        raise StartError(f"unable to use {config.certificate} and {config.key} for monitoring: {error}") from error
    return context
