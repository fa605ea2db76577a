"""Sessions of browsers: the user of each, by a random token of which only the hash stays here. Bounded in number and time.

They are in memory, so a restart of the server ends them.
"""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from stan import limits


class _Session(NamedTuple):
    user: str
    begun: int
    used: int


class BrowserSessions:
    """The sessions of one server. Times are monotonic ns."""

    def __init__(self, lasting_ns: int, clock: Callable[[], int]) -> None:
        """*lasting_ns*: a session ends this long after its login, and SESSION_IDLE after its last use."""
        self._lasting_ns = lasting_ns
        self._clock = clock
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()  # in the order of their logins

    def begin(self, user: str) -> str:
        """Begin a session of *user* and return its token; the oldest ends if there are too many, of all or of that user."""
        now = self._clock()
        self._end_old(now)
        own = [key for key, session in self._sessions.items() if session.user == user]
        for key in own[: len(own) + 1 - limits.SESSIONS_OF_USER_MAX]:
            del self._sessions[key]
        while len(self._sessions) >= limits.SESSIONS_MAX:
            self._sessions.popitem(last=False)
        token = secrets.token_urlsafe(32)
        self._sessions[_key(token)] = _Session(user, now, now)
        return token

    def use(self, token: str) -> str:
        """Return the user of a session, and note that it is used; "" if there is no such session."""
        now = self._clock()
        key = _key(token)
        session = self._sessions.get(key)
        if session is None or self._is_over(session, now):
            self._sessions.pop(key, None)
            return ""
        self._sessions[key] = session._replace(used=now)
        return session.user

    def end(self, token: str) -> None:
        """End a session, if it is there."""
        self._sessions.pop(_key(token), None)

    def _end_old(self, now: int) -> None:
        for key in [key for key, session in self._sessions.items() if self._is_over(session, now)]:
            del self._sessions[key]

    def _is_over(self, session: _Session, now: int) -> bool:
        return now - session.begun >= self._lasting_ns or now - session.used >= limits.SESSION_IDLE


def _key(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
