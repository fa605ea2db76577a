"""The quick import of nats-py, each case in a Python of its own: what is left out, and that it can be had afterwards."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
QUICK = "import sys\nfrom stan.edge.lazy_import import lazy_nats\nwith lazy_nats(web_sockets={}):\n    import nats.aio.client\n"


def said(code: str, *, web_sockets: bool = False) -> str:
    """What *code* prints after the import."""
    command = [sys.executable, "-c", QUICK.format(web_sockets) + code]
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


def test_import_for_web_sockets_is_complete():
    assert said("print('nats.js.api' in sys.modules)", web_sockets=True) == "True"
