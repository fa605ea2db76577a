"""Protection against other web sites: their pages may not use this server, whatever name they have given to this machine.

- The server answers to addresses, to names of this machine and to configured names (`http_hosts`), wherever it listens: a site
  whose name points here (DNS rebinding) reads nothing.
- A `callback` (JSONP) is the name of a function, no script. Pages that show inboxes are for pages of our own only.
- A request for a change also needs the option, or a role where there are logins; it has to come from our own page (Origin,
  Sec-Fetch-Site), with the token of this process, which other sites cannot read.
"""

import hmac
import ipaddress
import json
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from stan.config import MonitorConfig
from stan.monitor.login.authentication import LOGIN, Authentication, NotAdmittedError
from stan.monitor.login.viewer import Viewer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

TOKEN_HEADER: Final = "X-Stan-Token"  # noqa: S105 - its name only
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NOT_OURS: Final = "this server is asked by a name that is not its own: --http_hosts tells it of more names"
NO_FUNCTION: Final = "callback is not the name of a function"
NO_CALLBACK: Final = "there are no callbacks for people who have logged in: pages of other sites could use them"
ONLY_READS: Final = "you may only look: your role is read"
_FUNCTION: Final = re.compile(r"[A-Za-z0-9_.$]{1,256}")
OPEN: Final = frozenset({"/streaming/serverz", "/streaming/storez", "/streaming/channelsz", "/varz", "/healthz"})
"""Pages that other sites may read, as in NATS Streaming: they contain figures and names, no inboxes."""
CORS: Final = "Access-Control-Allow-Origin"
OFF: Final = "the dashboard only shows: start the server with --dashboard_actions to change things here"


class Guard:
    """Checks each HTTP request before a page handles it."""

    def __init__(self, config: MonitorConfig, authentication: Authentication) -> None:
        """*authentication* finds who sends a request."""
        self.authentication = authentication
        self.token = secrets.token_urlsafe(32)
        self._names = {"localhost", config.host.lower(), socket.gethostname().lower(), *config.hosts}
        self._below = tuple(name[1:] for name in (*config.hosts, "*.localhost") if name.startswith("*"))

    def refuses(self, headers: Mapping[str, str]) -> str:
        """Return the reason to refuse a request; "" admits it. Browsers always send the requested name (Host)."""
        return "" if self._known(headers.get("Host") or "localhost") else NOT_OURS

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the requests of all pages."""
        if refusal := self.refuses(request.headers):
            return _refused(request, 403, refusal)
        callbacks = list(filter(None, request.query.getall("callback", [])))
        if not all(map(_FUNCTION.fullmatch, callbacks)):
            return _refused(request, 400, NO_FUNCTION)
        if callbacks and self.authentication.has_logins:
            return _refused(request, 403, NO_CALLBACK)
        try:
            self.authentication.admit(request)
        except NotAdmittedError as refused:
            return _refused(request, refused.status, str(refused), refused.headers)
        return await handler(request)

    def refuses_change(self, headers: Mapping[str, str], viewer: Viewer) -> str:
        """Return why a change by *viewer* is not made; empty: it may be."""
        if not viewer.acts:
            return ONLY_READS if self.authentication.has_logins else OFF
        if refusal := self.refuses_post(headers):
            return refusal
        if not hmac.compare_digest(
            headers.get(TOKEN_HEADER, "").encode("utf-8", "surrogateescape"), self.token.encode()
        ):
            return "the server was started again meanwhile: load the page again"
        return ""

    def refuses_post(self, headers: Mapping[str, str]) -> str:
        """Return why a request that may change something, or logs in, is not our own page's; empty: it is."""
        host, origin = headers.get("Host", ""), headers.get("Origin", "")
        if not self._known(host):
            return NOT_OURS
        if (
            origin.lower() not in {f"http://{host.lower()}", f"https://{host.lower()}"}
            or headers.get("Sec-Fetch-Site", "same-origin") != "same-origin"
        ):
            return "changes are made by the dashboard's own pages only"
        if not headers.get("Content-Type", "").startswith("application/json"):
            return "changes come as JSON"
        return ""

    def _known(self, host: str) -> bool:
        """Return True if a Host is an address, or a name that no other site can point here."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
        except ValueError:
            return False
        return _is_address(name) or name in self._names or name.endswith(self._below)


def _refused(request: web.Request, status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    told = {**HEADERS, **(headers or {})}
    if request.path.startswith("/api/"):
        document = json.dumps({"error": text, "login": LOGIN if status == 401 else ""})
        return web.Response(status=status, text=document, content_type="application/json", headers=told)
    return web.Response(status=status, text=f"{text}\n", headers=told)


def readable_by_all(path: str, query: Mapping[str, str]) -> bool:
    """Return True if pages of other sites may read a page, because it shows no inbox."""
    return path in OPEN and query.get("subs", "") in {"", "0"}


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
