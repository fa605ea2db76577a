"""Real databases for tests: PostgreSQL and MariaDB on free ports, gone with the test; skipped where they are not installed."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.kit.ports import free_port
from tests.kit.server import until

PASSWORD = "p@ss:word/1"  # noqa: S105 - of a database that lives as long as a test
DATABASE = "streaming"
USER = "stan"


class TestDatabase:
    """A running database with the password *PASSWORD* for *USER*."""

    __test__ = False

    def __init__(self, url, connect):
        self.url = url
        self._connect = connect

    @contextlib.contextmanager
    def connected(self):
        """Yield a connection that stores what is executed at once."""
        connection = self._connect()
        try:
            yield connection
        finally:
            connection.close()

    def execute(self, statement, rows=()):
        """Execute a statement, or one for each of *rows*."""
        with self.connected() as connection, connection.cursor() as cursor:
            if rows:
                cursor.executemany(statement, rows)
            else:
                cursor.execute(statement)

    def script(self, path):
        """Execute a dump."""
        self.execute(path.read_text())


@contextlib.contextmanager
def _owned():
    """A directory of the user under whom databases run, who is not root, and options for their processes."""
    root = os.getuid() == 0
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="stan-db-", ignore_cleanup_errors=True) as directory:
        if root:
            nobody = pwd.getpwnam("nobody")
            os.chown(directory, nobody.pw_uid, nobody.pw_gid)
        as_nobody = {"user": "nobody", "group": nobody.pw_gid, "extra_groups": []} if root else {}
        yield Path(directory), {"env": os.environ | {"TMPDIR": directory}, **as_nobody}


@contextlib.contextmanager
def _running(command, directory, options, ready):
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory, **options)
    try:
        until(lambda: process.poll() is not None or ready(), 60)
        assert process.poll() is None, (directory / "log").read_text()
        yield
    finally:
        process.kill()
        process.wait()


def _program(*names):
    """The path of the first program that is installed, also beside a link to another one."""
    for name in names:
        if found := shutil.which(name, path=f"{os.environ['PATH']}:/usr/local/bin:/usr/sbin:/usr/bin"):
            return found
    pytest.skip(f"{names[0]} is not installed")


@contextlib.contextmanager
def postgres():
    """A PostgreSQL."""
    psycopg = pytest.importorskip("psycopg")
    program, initdb = _program("postgres"), _program("initdb")
    with _owned() as (directory, options):
        (directory / "password").write_text(PASSWORD)
        (directory / "password").chmod(0o644)
        data, port = directory / "data", free_port()
        made = [initdb, "-D", str(data), "-U", USER, "-A", "scram-sha-256", "--pwfile", str(directory / "password")]
        more = ["-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run([*made, *more], check=True, capture_output=True, cwd=directory, **options)
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"]
        command = [program, "-D", str(data), "-p", str(port), *(word for one in settings for word in ("-c", one))]

        def connect(database=DATABASE):
            where = {"host": "127.0.0.1", "port": port, "user": USER, "password": PASSWORD, "dbname": database}
            return psycopg.connect(**where, autocommit=True)

        def ready():
            with contextlib.suppress(psycopg.OperationalError), connect("postgres") as connection:
                connection.execute(f"CREATE DATABASE {DATABASE}")
                return True
            return False

        with _running(command, directory, options, ready):
            yield TestDatabase(f"postgres://{USER}@127.0.0.1:{port}/{DATABASE}", connect)


@contextlib.contextmanager
def mariadb():
    """A MariaDB."""
    pymysql = pytest.importorskip("pymysql")
    program, install = _program("mariadbd", "mysqld"), _program("mariadb-install-db")
    with _owned() as (directory, options):
        data, port, socket = directory / "data", free_port(), directory / "socket"
        made = [install, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal"]
        subprocess.run([*made, "--skip-test-db"], check=True, capture_output=True, cwd=directory, **options)
        settings = [
            f"--port={port}",
            "--bind-address=127.0.0.1",
            f"--socket={socket}",
            "--innodb-flush-log-at-trx-commit=0",
        ]
        command = [program, "--no-defaults", f"--datadir={data}", f"--pid-file={directory / 'pid'}", *settings]

        def connect():
            where = {"host": "127.0.0.1", "port": port, "user": USER, "password": PASSWORD, "database": DATABASE}
            flags = pymysql.constants.CLIENT.MULTI_STATEMENTS
            return pymysql.connect(**where, autocommit=True, charset="utf8mb4", client_flag=flags)

        def ready():
            with contextlib.suppress(pymysql.Error):
                root = pymysql.connect(unix_socket=str(socket), user="root")
                with root.cursor() as cursor:
                    cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
                    for host in ("127.0.0.1", "localhost"):
                        cursor.execute(f"CREATE USER {USER}@'{host}' IDENTIFIED BY '{PASSWORD}'")
                        cursor.execute(f"GRANT ALL ON {DATABASE}.* TO {USER}@'{host}'")
                root.close()
                return True
            return False

        with _running(command, directory, options, ready):
            yield TestDatabase(f"mysql://{USER}@127.0.0.1:{port}/{DATABASE}", connect)


KINDS = {"postgres": postgres, "mariadb": mariadb}
