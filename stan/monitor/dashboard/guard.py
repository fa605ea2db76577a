"""Who may ask the dashboard's API what: pages of other sites may not, whatever name they have given to this machine.

- A loopback server answers only to addresses and names of this machine, so that a site whose name points here (DNS rebinding)
  reads nothing.
- What changes something also needs the option, a request made by our own page (Origin, Sec-Fetch-Site), and the token of this
  process, which other sites cannot read.
"""

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from stan.config import MonitorConfig

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
OFF: Final = "the dashboard only shows: start the server with --dashboard_actions to change things here"


class Guard:
    """See the module's docstring."""

    def __init__(self, config: MonitorConfig) -> None:
        self.actions = config.dashboard_actions
        self.token = secrets.token_urlsafe(32)
        self._names = {"localhost", config.host.lower(), socket.gethostname().lower()}
        self._loopback = config.host == "localhost" or (_is_address(config.host) and _is_loopback(config.host))

    def refuses(self, headers: Mapping[str, str]) -> str:
        """Why a question is not answered; empty: it is."""
        if self._loopback and not self._known(headers.get("Host", "")):
            return "this server is asked by a name that is not its own"
        return ""

    def refuses_change(self, headers: Mapping[str, str]) -> str:
        """Why a change is not made; empty: it may be."""
        host, origin = headers.get("Host", ""), headers.get("Origin", "")
        if not self.actions:
            return OFF
        if not self._known(host):
            return "this server is asked by a name that is not its own"
        if (
            origin.lower() not in {f"http://{host.lower()}", f"https://{host.lower()}"}
            or headers.get("Sec-Fetch-Site", "same-origin") != "same-origin"
        ):
            return "changes are made by the dashboard's own pages only"
        if not headers.get("Content-Type", "").startswith("application/json"):
            return "changes come as JSON"
        if not hmac.compare_digest(
            headers.get(TOKEN_HEADER, "").encode("utf-8", "surrogateescape"), self.token.encode()
        ):
            return "the server was started again meanwhile: load the page again"
        return ""

    def _known(self, host: str) -> bool:
        """Whether a Host is an address, or a name that nobody else could have pointed here."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return _is_address(name) or name in self._names or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return ipaddress.ip_address(name).is_loopback
