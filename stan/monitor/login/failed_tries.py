"""Failed logins, counted by address and in all, so that nobody can guess for long. Bounded in memory."""

from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from stan_protocol.scalars import SECOND

from stan import limits


class FailedTries:
    """Counts the failed logins of the present window of LOGIN_WINDOW. *clock*: monotonic ns."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._began = clock()
        self._failed: dict[str, int] = {}  # at most LOGIN_FAILURES_ALL_MAX sources: beyond that nothing is counted
        self._all = 0

    def wait_s(self, address: str, *, guessable: bool) -> int:
        """Return the seconds until *address* may try again; 0: now. *guessable*: it is a password, which people choose: then the
        failures of all addresses together count as well."""
        self._turn()
        spent = self._failed.get(source_of(address), 0) >= limits.LOGIN_FAILURES_MAX
        if not spent and not (guessable and self._all >= limits.LOGIN_FAILURES_ALL_MAX):
            return 0
        return max(1, (self._began + limits.LOGIN_WINDOW - self._clock()) // SECOND)

    def note(self, address: str) -> None:
        """Note a failed login from *address*."""
        self._turn()
        self._all += 1
        source = source_of(address)
        if source in self._failed or len(self._failed) < limits.LOGIN_FAILURES_ALL_MAX:
            self._failed[source] = self._failed.get(source, 0) + 1

    def forgive(self, address: str) -> None:
        """Take back one failed login of *address*: it was none."""
        source = source_of(address)
        if self._failed.get(source):
            self._failed[source] -= 1
            self._all -= 1

    def _turn(self) -> None:
        if self._clock() - self._began >= limits.LOGIN_WINDOW:
            self._began, self._failed, self._all = self._clock(), {}, 0


def source_of(address: str) -> str:
    """Return what counts as one address: of IPv6 the network of 64 bits, all of which one machine may have."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if not isinstance(parsed, IPv6Address) or parsed.ipv4_mapped is not None:
        return str(parsed)
    return str(int(parsed) >> 64)
