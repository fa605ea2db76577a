"""Rate limits of requests by token buckets: one for all clients together, and one per client. Pure.

A bucket holds as many tokens as one second brings, so a client that was silent may send a second's worth at once. Without a
limit nothing is counted or kept.
"""

from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import RequestLimits


class RateLimiter:
    """The token bucket of all clients together, and those of clients with recent requests."""

    def __init__(self, config: RequestLimits) -> None:
        self._everybody = TokenBucket(config.rate)
        self._each = config.client_rate
        self._clients: dict[bytes, TokenBucket] = {}  # least recently used first

    def configure(self, config: RequestLimits) -> None:
        """Apply changed rates; all buckets are full again."""
        self._everybody = TokenBucket(config.rate)
        self._each = config.client_rate
        self._clients.clear()

    def admit(self, now: int, client_id: bytes = b"") -> bool:
        """True if a request at *now*, monotonic ns, is within the rates; a refused request takes no token."""
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
    """Gains *rate* tokens a second and holds at most *rate*; 0: no limit."""

    __slots__ = ("_at", "_rate", "_tokens")

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._tokens = float(rate)
        self._at = 0  # monotonic ns

    def has(self, now: int) -> bool:
        """True if there is a token at *now*, monotonic ns."""
        if not self._rate:
            return True
        if now > self._at:
            self._tokens = min(float(self._rate), self._tokens + (now - self._at) * self._rate / SECOND)
            self._at = now
        return self._tokens >= 1

    def take(self) -> None:
        """Take a token; only after `has` was True."""
        self._tokens -= 1
