"""Contexts: named ways to reach a cluster, each a JSON file of its own that only its owner can read.

    $XDG_CONFIG_HOME/stan/contexts/NAME.json    the differences from the defaults
    $XDG_CONFIG_HOME/stan/context               the name of the one in use

Promises: a file is written whole or not at all, with mode 0600; secrets are never part of an error or of `shown`.
"""

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stan_protocol.secure import HIDDEN, without_secrets

FIELDS: Final = (
    *("server", "cluster_id", "creds", "nkey", "user", "password", "token"),
    *("tls_ca", "tls_cert", "tls_key"),
)
"""The fields of a context; all of them text."""
SECRETS: Final = frozenset({"password", "token"})
FILES: Final = frozenset({"creds", "nkey", "tls_ca", "tls_cert", "tls_key"})

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class ContextError(Exception):
    """A context that cannot be used; the text gives the reason and the next step."""


def folder() -> Path:
    """Return the directory of the contexts."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "stan"


def names() -> list[str]:
    """Return the names of all contexts, sorted."""
    return sorted(path.stem for path in (folder() / "contexts").glob("*.json"))


def texts() -> list[str]:
    """Return the contents of all context files, unparsed."""
    texts = []
    for path in (folder() / "contexts").glob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            texts.append(path.read_text(encoding="utf-8"))
    return texts


def used() -> str:
    """Return the name of the context in use, "" if there is none."""
    with contextlib.suppress(OSError):
        return (folder() / "context").read_text(encoding="utf-8").strip()
    return ""


def use(name: str) -> None:
    """Make *name* the context in use; "": none. Raises ContextError."""
    if name:
        load(name)
        _write(folder() / "context", name + "\n")
    else:
        (folder() / "context").unlink(missing_ok=True)


def path_of(name: str) -> Path:
    """Return the path of a context's file, existing or not. Raises ContextError: invalid name."""
    if not _NAME.fullmatch(name):
        raise ContextError(f"{name!r} is no name for a context: letters, digits, `_`, `-` and `.`, 64 at most.")
    return folder() / "contexts" / f"{name}.json"


def load(name: str) -> dict[str, str]:
    """Read a context's settings. Raises ContextError: there is no such context, or its file is damaged."""
    path = path_of(name)
    try:
        return checked(json.loads(path.read_text(encoding="utf-8")), str(path))
    except FileNotFoundError:
        known = ", ".join(names()) or "none yet; make one with `stan context add NAME --server URL`"
        raise ContextError(f"There is no context {name!r}. There are: {known}.") from None
    except (OSError, ValueError) as error:
        raise ContextError(
            f"{path} cannot be read: {error}. Mend it, or remove it and add the context again."
        ) from None


def checked(fields: object, where: str) -> dict[str, str]:
    """Return *fields* that have a value. Raises ContextError with all mistakes."""
    if not isinstance(fields, dict):
        raise ContextError(f"{where}: a context is a JSON object.")
    complaints = [f"unknown field {key!r}" for key in fields if key not in FIELDS]
    complaints += [f"{key} is no text" for key, value in fields.items() if not isinstance(value, str)]
    if complaints:
        raise ContextError(f"{where}: {'; '.join(complaints)}. Fields are: {', '.join(FIELDS)}.")
    return {key: value for key, value in fields.items() if value}


def save(name: str, fields: Mapping[str, str]) -> None:
    """Write a context. Raises ContextError."""
    _write(path_of(name), json.dumps(dict(fields), indent=2) + "\n")


def remove(name: str) -> None:
    """Forget one. Raises ContextError: there is none."""
    load_or_damaged = path_of(name)
    try:
        load_or_damaged.unlink()
    except FileNotFoundError:
        load(name)  # says which there are
    if used() == name:
        use("")


def shown(fields: Mapping[str, str]) -> dict[str, str]:
    """*fields* for people: secrets are hidden, also those inside of a URL."""
    hidden = {key: HIDDEN if key in SECRETS else value for key, value in fields.items()}
    if "server" in hidden:
        hidden["server"] = without_secrets(hidden["server"])
    return hidden


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # mode 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ContextError(f"{path} cannot be written: {error}.") from None
