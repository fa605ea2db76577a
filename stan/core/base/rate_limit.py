"""How many requests a second are handled: of everybody together, and of each client; pure.

A bucket holds as many tokens as one second brings, so that who was silent may ask for a second's worth at once. Nothing is
counted, and nothing kept, where there is no limit.
"""

from stan import limits
from stan.config import RequestLimits
from stan.types import SECOND


class RateLimiter:
    """Tokens of everybody, and of each client that has asked of late."""

    def __init__(self, config: RequestLimits) -> None:
        self._everybody = TokenBucket(config.rate)
        self._each = config.client_rate
        self._clients: dict[bytes, TokenBucket] = {}  # who has asked least lately is in front

    def configure(self, config: RequestLimits) -> None:
        """Other rates from now on."""
        self._everybody = TokenBucket(config.rate)
        self._each = config.client_rate
        self._clients.clear()

    def admit(self, now: int, client_id: bytes = b"") -> bool:
        """Whether a request at *now*, monotonic ns, is within the rates; one that is not takes no token."""
        if self._each and client_id:
            bucket = self._clients.pop(client_id, None) or TokenBucket(self._each)
            self._clients[client_id] = bucket
            if len(self._clients) > limits.RATED_CLIENTS_MAX:
                del self._clients[next(iter(self._clients))]
            if not bucket.has(now):
                return False
            if not self._everybody.has(now):
                return False
            bucket.take()
        elif not self._everybody.has(now):
            return False
        self._everybody.take()
        return True


class TokenBucket:
    """Tokens that come in with time, as many as *rate* a second and no more than that at once; 0: without end."""

    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._tokens = float(rate)
        self._at = 0  # monotonic ns

    def has(self, now: int) -> bool:
        """Whether there is one at *now*, monotonic ns."""
        if not self._rate:
            return True
        if now > self._at:
            self._tokens = min(float(self._rate), self._tokens + (now - self._at) * self._rate / SECOND)
            self._at = now
        return self._tokens >= 1

    def take(self) -> None:
        """Take one that is there."""
        self._tokens -= 1
