"""What is said of a directory that cannot be used, at the start."""

import sqlite3

import pytest

from stan.errors import NotNow
from stan.server.compose import start_failure


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileExistsError(17, "File exists", "/etc/hostname"), "/etc/hostname is no directory"),
        (NotADirectoryError(20, "Not a directory", "/etc/hostname/x"), "/etc/hostname/x is no directory"),
        (PermissionError(13, "Permission denied", "/data"), "/data: permission denied"),
        (OSError("odd"), "odd"),
    ],
)
def test_directory_that_cannot_be_used_is_named(error, text):
    assert start_failure(error, None) == text


def test_a_database_whose_disk_fails_is_named_with_what_to_do():
    try:
        try:
            failed = sqlite3.OperationalError("disk I/O error")
            failed.sqlite_errorname = "SQLITE_IOERR_READ"
            raise failed
        except sqlite3.OperationalError as error:
            raise NotNow(f"/data/state.db: {error}") from error
    except NotNow as error:
        text = start_failure(error, None)
    assert text.startswith("/data/state.db: disk I/O error: its disk fails")
    assert "start again" in text
