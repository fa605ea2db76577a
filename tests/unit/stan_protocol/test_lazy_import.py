"""The quick import of nats-py, each case in a Python of its own: what is left out, and that it can be had afterwards."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
QUICK = "import sys\nfrom stan_protocol.lazy_import import lazy_nats\nwith lazy_nats():\n    import nats.aio.client\n"


def said(code: str) -> str:
    """What *code* prints after the import."""
    command = [sys.executable, "-c", QUICK + code]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()


def test_quick_import_loads_neither_jetstream_nor_aiohttp():
    loaded = "nats.js.api", "aiohttp", "importlib.metadata"

    assert said(f"print([name for name in {loaded} if name in sys.modules])") == "[]"


def test_quick_import_has_jetstream_when_it_is_asked_for():
    assert (
        said("print(nats.js.api.Header.STATUS.value, nats.js.JetStreamContext.__name__)") == "Status JetStreamContext"
    )


def test_quick_import_lets_hidden_modules_be_imported_afterwards():
    assert said("from importlib.metadata import version\nprint(bool(version('nats-py')))") == "True"


def test_web_sockets_have_what_they_need_when_they_are_asked_for():
    code = "from stan_protocol.lazy_import import with_web_sockets\nfrom nats.aio import transport\nwith_web_sockets(transport)\n"
    assert said(f"{code}print(transport.aiohttp.ClientSession.__name__)") == "ClientSession"


def test_errors_of_jetstream_are_those_that_a_program_imports():
    code = "from nats.js.errors import NotFoundError\nimport nats.js.manager\n"
    assert (
        said(f"{code}print(nats.js.manager.NotFoundError is NotFoundError is nats.js.errors.NotFoundError)") == "True"
    )
