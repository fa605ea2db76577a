"""The command line that the system shows for this process: its secrets are overwritten.

On Linux the arguments lie in the process's own memory, where /proc/<pid>/cmdline reads them: they are overwritten there as
soon as they were read. A process list taken in the first moments still contains them, so a secret belongs into the
environment or a file. Elsewhere nothing happens.
"""

import ctypes
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

SECRET_FLAGS: Final = ("encryption_key", "pass", "auth")
"""Flags of `stan-server` with secret values."""
_LOGIN = re.compile(rb"(?<=://)(?:[^:@/,]*:)?(?P<secret>[^@/,]+)(?=@)")
"""The password of a URL, or a token for NATS."""
_ARG_START, _ARG_END = 47, 48  # fields of /proc/self/stat, counted from 0


def hide_arguments(names: "Collection[str]" = SECRET_FLAGS) -> bool:
    """Overwrite the values of these flags where the system shows them; returns whether there were any."""
    if sys.platform != "linux":
        return False
    with suppress(OSError, ValueError, IndexError):
        shown = Path("/proc/self/cmdline").read_bytes()
        spans = secret_spans(shown, names)
        if not spans:
            return False
        behind_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()  # from the third field on
        start, end = int(behind_name[_ARG_START - 2]), int(behind_name[_ARG_END - 2])
        if start and end - start >= len(shown) - 1 and ctypes.string_at(start, len(shown)) == shown:
            for at, length in spans:
                ctypes.memset(start + at, ord("x"), length)
            return True
    return False


def secret_spans(arguments: bytes, names: "Collection[str]") -> list[tuple[int, int]]:
    """Place and length of values of flags and of passwords in URLs, in a list of arguments that end with a zero byte each."""
    flags = {dashes + name.encode() for name in names for dashes in (b"-", b"--")}
    spans = []
    at, expected = 0, False
    for argument in arguments.split(b"\0"):
        name, mark, value = argument.partition(b"=")
        if expected:
            spans.append((at, len(argument)))
        elif mark and name in flags and value:
            spans.append((at + len(name) + 1, len(value)))
        else:
            spans += [(at + login.start("secret"), len(login["secret"])) for login in _LOGIN.finditer(argument)]
        expected = not expected and argument in flags
        at += len(argument) + 1
    return [span for span in spans if span[1]]
