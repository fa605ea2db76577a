"""What is said of a directory that cannot be used, at the start."""

import pytest

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
