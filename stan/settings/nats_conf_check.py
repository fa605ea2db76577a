"""What nats-server has against its part of the configuration, asked of itself: it reads it and does not start.

Promises: one complaint a line, each with the user's file and line as far as nats-server tells them; nothing is left running.
"""

import os
import re
import subprocess

from stan import limits
from stan.config import EmbeddedConfig
from stan.edge.nats.nats_process import find_binary, in_users_files, unnamed_file
from stan.errors import StartError
from stan.types import SECOND

_PREFIX = "nats-server: "
_KIND = re.compile(r"interface conversion: interface \{\} is (?P<got>\S+), not (?P<wanted>\S+)")


def check(config: EmbeddedConfig) -> list[str]:
    """Complaints about the file of *config*; none if there is no file, or all is well. Blocks while nats-server reads it."""
    if config.config_file is None:
        return []
    try:
        binary = find_binary()
    except StartError as error:
        return [str(error)]
    descriptor = unnamed_file(config) if config.config_text is not None else None
    name = str(config.config_file) if descriptor is None else f"/dev/fd/{descriptor}"
    try:
        answer = subprocess.run(  # noqa: S603 - no shell, and the arguments are ours
            [binary, "-t", "-c", name],
            capture_output=True,
            check=False,
            pass_fds=() if descriptor is None else (descriptor,),
            timeout=limits.NATS_READY_TIMEOUT / SECOND,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return [f"nats-server could not check its configuration: {error}"]
    finally:
        if descriptor is not None:
            os.close(descriptor)
    if answer.returncode == 0:
        return []
    said = in_users_files(answer.stderr + answer.stdout, config).decode("utf-8", "replace").strip()
    said = _KIND.sub(r"value is expected to be \g<wanted>, got \g<got>", said.removeprefix(_PREFIX))
    return [line for line in said.splitlines() if line.strip()] or [f"nats-server refuses {config.config_file}"]
