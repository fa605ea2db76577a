"""Secrets of the command line are taken out of the process's title, which everybody on the machine can read.

Linux only, and as far as the system lets us look at the place where the arguments lie; elsewhere nothing happens. Between
the start of the program and this call they can be read: a file or a variable of the environment, is a better place for a secret.
"""

import re
import sys
from pathlib import Path

_ARG_START, _ARG_END = 45, 46  # fields of /proc/self/stat behind the name of the program, see proc(5)
_SECRETS = frozenset({b"pass", b"auth", b"encryption_key"})
_LOGIN = re.compile(rb"(?<=://)(?P<user>[^:@/,]*:)?(?P<secret>[^@/,]+)(?=@)")


def hide() -> None:
    """Overwrite what is secret among our own arguments."""
    if not sys.platform.startswith("linux"):
        return
    try:
        before = Path("/proc/self/cmdline").read_bytes()
        after = masked(before)
        if after != before:
            _overwrite(before, after)
    except (OSError, ValueError, IndexError):
        return


def _overwrite(before: bytes, after: bytes) -> None:
    import ctypes  # noqa: PLC0415 - seldom needed

    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    if start and end - start == len(before) == len(after) and ctypes.string_at(start, end - start) == before:
        ctypes.memmove(start, after, len(after))  # else somebody has changed the title already


def masked(arguments: bytes) -> bytes:
    """*arguments*, each ended by a zero byte, with as many asterisks in the place of each secret as that has bytes."""
    found = arguments.split(b"\0")
    behind = False  # a flag whose value is secret
    for at, argument in enumerate(found):
        name, mark, value = argument.partition(b"=")
        secret = name.startswith(b"-") and name.lstrip(b"-") in _SECRETS
        if behind:
            found[at] = b"*" * len(argument)
        elif secret and mark:
            found[at] = name + mark + b"*" * len(value)
        else:
            found[at] = _LOGIN.sub(lambda login: (login["user"] or b"") + b"*" * len(login["secret"]), argument)
        behind = secret and not mark and not behind
    return b"\0".join(found)
