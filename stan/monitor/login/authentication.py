"""Decides about each request to the pages: who sends it, and if that person may have the page at all.

Without logins everybody is let in, with all rights. With them the health checks, the files of the dashboard and the login itself
are for everybody; the answers of the dashboard need a login, and show the channels of its user; all other pages, which
tell of all channels, are for those who may see all channels. Pages of other sites get nothing, whatever a proxy would add to
their requests.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web

from stan import limits
from stan.config import Config
from stan.monitor.login.failed_tries import FailedTries
from stan.monitor.login.people import People
from stan.monitor.login.sessions import BrowserSessions
from stan.monitor.login.viewer import Viewer, everybody

AskNats = Callable[[str, str], Awaitable[bool]]

VIEWER: Any = web.RequestKey("viewer", Viewer) if hasattr(web, "RequestKey") else "stan.viewer"
"""Key of a request under which its viewer stands; aiohttp before 3.14 has no keys but texts."""
API: Final = "/api/v1/"
LOGIN: Final = f"{API}login"
LOGOUT: Final = f"{API}logout"
_OPEN: Final = re.compile(
    rf"/dashboard(?:/(?:[a-z]+(?:[.-][a-z]+)*)?)?|/healthz(?:/(?:live|startup|ready))?|/streaming/isFTActive|{LOGIN}"
)
"""Paths for everybody, each as a whole: a prefix could be followed by a way up to other pages."""
_BEARER: Final = "bearer "
LOG_IN: Final = "log in first"
NOT_ALL: Final = "this page tells of all channels, and you may not see all of them"
TOO_OFTEN: Final = "too many failed logins: try again in {seconds} s"
OTHER_SITE: Final = "this page is not for other sites"


class NotAdmittedError(Exception):
    """A request is not let in; the text is sent to its sender."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = dict(headers or {})


class Authentication:
    """Lets requests in, and knows who sends each."""

    def __init__(
        self, config: Config, ask_nats: AskNats | None = None, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """*ask_nats*: returns True if NATS takes a user's password; *clock*: monotonic ns."""
        self._ask_nats = ask_nats
        self._asking = asyncio.Semaphore(limits.LOGIN_CHECKS_MAX)
        monitor = config.monitor
        self._anybody = everybody(acts=monitor.dashboard_actions)
        self._people = None if monitor.logins is None else People(monitor.logins, config.permissions)
        self._tries = FailedTries(clock)
        self._sessions = BrowserSessions(0 if monitor.logins is None else monitor.logins.session_ns, clock)
        self.cookie = f"stan_session_{monitor.port}"
        """Name of the cookie of a session; it names the port, as browsers keep one cookie for all ports of a host."""

    @property
    def has_logins(self) -> bool:
        """True if people have to log in."""
        return self._people is not None

    def admit(self, request: web.Request) -> None:
        """Set the viewer of *request*, if somebody is known. Raises NotAdmittedError."""
        path = request.path
        if self._people is None:
            request[VIEWER] = self._anybody
            return
        if _OPEN.fullmatch(path):
            return
        if request.headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"} and (
            request.headers.get("Sec-Fetch-Mode") != "navigate"
        ):
            raise NotAdmittedError(403, OTHER_SITE)
        viewer = self.viewer_of(request)
        if viewer is None:
            raise NotAdmittedError(401, LOG_IN, {"WWW-Authenticate": "Bearer"})
        if not path.startswith(API) and not viewer.sees_all:
            raise NotAdmittedError(403, NOT_ALL)
        request[VIEWER] = viewer

    def viewer_of(self, request: web.Request) -> Viewer | None:
        """Return the sender of a request, by the proxy's header, a token, or a session; None: nobody known. Raises
        NotAdmittedError: too many tokens were wrong."""
        people = self._people
        if people is None:
            return self._anybody
        address = request.remote or ""
        if people.is_proxy(address) and people.proxy_header in request.headers:
            return people.by_proxy(request.headers.getall(people.proxy_header))
        given = request.headers.get("Authorization", "")
        if given.lower().startswith(_BEARER):
            return self.log_in(address, given[len(_BEARER) :].strip())
        user = self._sessions.use(request.cookies.get(self.cookie, ""))
        return people.named(user) if user else None

    def is_still_known(self, request: web.Request) -> bool:
        """Return True if the sender of a request that is still being answered has a login yet."""
        try:
            return self.viewer_of(request) is not None
        except NotAdmittedError:
            return False

    def log_in(self, address: str, token: str) -> Viewer | None:
        """Return the person with this token; None, and one more failed try of *address*: nobody has it. Raises NotAdmittedError:
        too many tries have failed."""
        self._check_tries(address, guessable=False)
        viewer = None
        if self._people is not None and len(token) <= limits.LOGIN_SECRET_CHARS_MAX:
            viewer = self._people.by_token(token)
        if viewer is None:
            self._tries.note(address)
        return viewer

    async def log_in_by_password(self, address: str, name: str, password: str) -> Viewer | None:
        """Return the person with this name and password; otherwise as `log_in`. A try counts as failed while it is checked."""
        self._check_tries(address, guessable=True)
        self._tries.note(address)
        if self._people is None or max(len(name), len(password)) > limits.LOGIN_SECRET_CHARS_MAX:
            return None
        viewer = self._people.by_password(name, password)
        if viewer is None and password and self._ask_nats is not None and self._people.has_hash(name):
            async with self._asking:
                viewer = self._people.named(name) if await self._ask_nats(name, password) else None
        if viewer is not None:
            self._tries.forgive(address)
        return viewer

    def _check_tries(self, address: str, *, guessable: bool) -> None:
        wait_s = self._tries.wait_s(address, guessable=guessable)
        if wait_s:
            raise NotAdmittedError(429, TOO_OFTEN.format(seconds=wait_s), {"Retry-After": str(wait_s)})

    def begin(self, viewer: Viewer) -> str:
        """Begin a session; returns the value of its cookie."""
        return self._sessions.begin(viewer.name)

    def end(self, request: web.Request) -> None:
        """End the session of a request, if it has one."""
        self._sessions.end(request.cookies.get(self.cookie, ""))
