"""Directories of clusters that the original has left, see tests/fixtures/README.md, compared with what it showed of them."""

import json
import tarfile
from pathlib import Path
from typing import Any

from stan.migration.file_stores import file_stores
from stan.migration.moving import move
from stan.migration.plan import MigrationPlan
from stan.migration.report import MigrationReport
from tests.kit.old_store import FIXTURES, KEY
from tests.kit.opened_store import Opened
from tests.kit.original_cluster import digest

NODES = ("a", "b", "c")


def unpack(name: str, directory: Path) -> dict[str, Any]:
    """Unpack a fixture; return what the original showed before it was stopped."""
    with tarfile.open(FIXTURES / "stan-cluster" / f"{name}.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return json.loads((directory / "expected.json").read_text())


def migrate(directory: Path, nodes: str, target: Path | None = None, **options: Any) -> MigrationReport:
    """Move nodes of a cluster, whose directories have a store and a Raft log each."""
    plan = MigrationPlan(
        source=file_stores(
            [directory / node / "store" for node in nodes], [directory / node / "raft" for node in nodes]
        ),
        target=target,
        **options,
    )
    return move(plan, lambda _total: None, lambda _size: None)


def encrypted(name: str) -> dict[str, bytes]:
    """The options for a fixture."""
    return {"key": KEY} if name in ("aes", "chacha") else {}


def moved(report: MigrationReport, target: Path, expected: dict[str, Any]) -> dict[str, Any]:
    """What was moved, as *expected* has it: messages that limits had removed, and that are still in the files, left out."""
    first = {name: ends[0] for name, ends in expected["ends"].items()}
    kept = {
        name.decode(): [
            (fields.number(1), fields.number(5), fields.text(4))
            for fields in messages
            if fields.number(1) >= first.get(name.decode(), 0)
        ]
        for name, messages in Opened(target).messages.items()
    }
    return {
        "ends": {name: [messages[0][0], messages[-1][0]] for name, messages in kept.items()},
        "hashes": {name: digest(iter(messages)) for name, messages in kept.items()},
        "positions": {
            channel.name: {
                f"{position.client_id}/{position.name}" if position.client_id else position.name: [
                    position.last_sent,
                    position.pending,
                ]
                for position in channel.positions
            }
            for channel in report.channels
        },
    }
