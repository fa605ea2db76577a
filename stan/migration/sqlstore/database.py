"""Connections to a database of the original: one snapshot that does not change while it is read, and a look at the present.

Promises: nothing is written or locked; answers are as large as the asker's LIMIT makes them; no text has a password.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from stan.errors import StartError

PROGRAM: Final = "stan migrate"
CONNECT_S: Final = 10
MYSQL_OPTIONS: Final = ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key")
"""What a mysql:// URL may have behind its question mark."""
SECRETS: Final = ("password", "sslpassword")
EXTRA: Final = "pip install 'stan-broker[sqlstore]'"
MYSQL_PORT: Final = 3306

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SqlAddress:
    """A database, and the way there."""

    url: str
    password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str, password: str = "") -> Self:
        """Check a URL. Raises StartError: it is none of ours, or has a password, which the list of processes would show."""
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError as error:
            raise StartError(f"the URL of the database is wrong: {error}") from None
        options = dict(parse_qsl(parts.query))
        if parts.scheme not in _DRIVERS or not parts.path.strip("/"):
            raise StartError("the URL of the database is postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE")
        if parts.password is not None or options.keys() & set(SECRETS):
            raise StartError(
                "a password in a URL is seen in the list of processes: put it into a file (--password-file)"
            )
        unknown = sorted(options.keys() - set(MYSQL_OPTIONS)) if _DRIVERS[parts.scheme] is _mysql else []
        if unknown:
            raise StartError(f"a mysql:// URL cannot have {unknown[0]!r}: there are {', '.join(MYSQL_OPTIONS)}")
        return cls(url, password)

    @property
    def title(self) -> str:
        """The database for people."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def snapshot(self) -> "SqlConnection":
        """Begin a transaction that reads and sees one state of all tables. Raises StartError."""
        return _DRIVERS[urlsplit(self.url).scheme](self, snapshot=True)

    def present(self) -> "SqlConnection":
        """A connection whose queries see the newest state each. Raises StartError."""
        return _DRIVERS[urlsplit(self.url).scheme](self, snapshot=False)


class SqlConnection:
    """A connection that only reads; the same SQL for both kinds of databases, with %s for parameters."""

    def __init__(
        self,
        title: str,
        cursor: Callable[[], Any],
        close: Callable[[], None],
        errors: tuple[type[Exception], ...],
        number: int,
        sessions: str,
    ) -> None:
        """Wrap a connection of PEP 249.

        Args:
            title: the database for people.
            cursor: makes a cursor, which is a context manager.
            close: closes the connection.
            errors: of its driver.
            number: of its session.
            sessions: the query of `sessions`.
        """
        self.number = number
        self.close = close
        self._title = title
        self._cursor = cursor
        self._errors = errors
        self._sessions = sessions

    def rows(self, query: str, *parameters: int) -> list[Row]:
        """Return the rows of a query, which bounds their number and size. Raises StartError."""
        try:
            with self._cursor() as cursor:
                cursor.execute(query, parameters or None)
                return list(cursor.fetchall())
        except self._errors as error:
            raise StartError(f"{self._title} cannot be read: {_line(error)}") from None

    def sessions(self) -> list[Row]:
        """Number, user, address and program of all sessions of the database that are visible."""
        return self.rows(self._sessions)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _postgres(address: SqlAddress, *, snapshot: bool) -> SqlConnection:
    try:
        import psycopg  # noqa: PLC0415 - an extra, of use here only
    except ImportError as error:
        raise StartError(f"PostgreSQL needs the package psycopg ({error}): {EXTRA}") from None
    try:
        connection: psycopg.Connection[Any] = psycopg.connect(
            address.url,
            password=address.password or None,
            connect_timeout=CONNECT_S,
            application_name=PROGRAM,
            client_encoding="utf8",
            prepare_threshold=None,
            autocommit=not snapshot,
        )
        connection.read_only = True
        connection.execute("SET idle_in_transaction_session_timeout = 0")
        if snapshot:
            connection.commit()
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    except psycopg.Error as error:
        raise StartError(f"{address.title} does not let us in: {_line(error)}") from None
    return SqlConnection(
        address.title,
        lambda: connection.cursor(binary=True),
        connection.close,
        (psycopg.Error, UnicodeError),
        connection.info.backend_pid,
        _POSTGRES_SESSIONS,
    )


def _mysql(address: SqlAddress, *, snapshot: bool) -> SqlConnection:
    try:
        import pymysql  # noqa: PLC0415 - an extra, of use here only
    except ImportError as error:
        raise StartError(f"MariaDB and MySQL need the package PyMySQL ({error}): {EXTRA}") from None
    parts = urlsplit(address.url)
    options = dict(parse_qsl(parts.query))
    verified = True if "ssl_ca" in options else None
    try:
        connection = pymysql.connect(
            host=parts.hostname or "localhost",
            port=parts.port or MYSQL_PORT,
            user=unquote(parts.username or ""),
            password=address.password,
            database=unquote(parts.path.strip("/")),
            unix_socket=options.get("unix_socket"),
            charset="utf8mb4",
            connect_timeout=CONNECT_S,
            program_name=PROGRAM,
            autocommit=True,
            ssl_ca=options.get("ssl_ca"),
            ssl_cert=options.get("ssl_cert"),
            ssl_key=options.get("ssl_key"),
            ssl_verify_cert=verified,
            ssl_verify_identity=verified,
        )
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION READ ONLY")
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            if snapshot:
                cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    except (pymysql.Error, OSError) as error:
        raise StartError(f"{address.title} does not let us in: {_line(error)}") from None
    return SqlConnection(
        address.title,
        connection.cursor,
        connection.close,
        (pymysql.Error, UnicodeError, OSError),
        int(connection.thread_id()),  # type: ignore[no-untyped-call]
        _MYSQL_SESSIONS,
    )


_POSTGRES_SESSIONS: Final = """
SELECT pid, COALESCE(usename, ''), COALESCE(host(client_addr), 'this machine'), COALESCE(application_name, '')
FROM pg_stat_activity WHERE datname = current_database()
    AND (backend_type = 'client backend' OR backend_type IS NULL AND usesysid IS NOT NULL) ORDER BY pid LIMIT 1000
"""
"""The kind of a session of another user is hidden; sessions of no user are the server's own."""
_MYSQL_SESSIONS: Final = """
SELECT id, user, host, '' FROM information_schema.processlist WHERE db = DATABASE() ORDER BY id LIMIT 1000
"""
_DRIVERS: Final[dict[str, Callable[..., SqlConnection]]] = {
    "postgres": _postgres,
    "postgresql": _postgres,
    "mysql": _mysql,
    "mariadb": _mysql,
}
