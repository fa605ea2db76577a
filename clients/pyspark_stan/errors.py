"""All errors of the package, of one family with those of stan_client. `DataLossError` and `ServerError` are the client's own."""

from collections.abc import Sequence

from stan_client.errors import StanClientError


class OptionsError(StanClientError, ValueError):
    """The options have mistakes; `complaints` are all of them."""

    def __init__(self, complaints: Sequence[str]) -> None:
        self.complaints = list(complaints)
        super().__init__("stan: " + "; ".join(complaints))

    def __reduce__(self) -> tuple[type["OptionsError"], tuple[list[str]]]:
        return OptionsError, (self.complaints,)


class UnreachableError(StanClientError, ConnectionError):
    """No NATS server can be reached; the text names the servers that were tried and the reason."""


class MalformedError(StanClientError, ValueError):
    """A message does not fit its schema, and the option malformed is fail."""


class RowError(StanClientError, ValueError):
    """Rows cannot be published, and the option onError is fail."""


class IdentityError(StanClientError, ValueError):
    """The work has no identity, or the same one as other work."""


class TableError(StanClientError, ValueError):
    """Rows that cannot be put into the table."""


class NoJavaError(StanClientError, RuntimeError):
    """Spark cannot run here; the text names the package to install."""
