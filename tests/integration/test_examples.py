"""Each program of docs/examples runs against a real server as it stands there, and prints what its docstring says.

What the docstring tells to type first, lines that begin with `stan`, is done before.
"""

import ast
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.server import ROOT, StanServer

EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
PRINTS = "It prints:"
SPARK = """
spark.ui.enabled false
spark.driver.bindAddress 127.0.0.1
spark.driver.host 127.0.0.1
spark.driver.memory 1g
spark.python.unix.domain.socket.enabled true
spark.sql.streaming.checkpointFileManagerClass \
org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager
"""
"""A small session on the loopback interface, without helper processes for the files of a checkpoint."""


def told(path: Path) -> tuple[list[list[str]], str]:
    """The commands that a program asks for, and what it prints."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    before, _, printed = text.partition(PRINTS)
    commands = [shlex.split(line) for line in before.splitlines() if line.startswith("    stan ")]
    return commands, "".join(f"{line.removeprefix('    ')}\n" for line in printed.strip("\n").splitlines())


def done(command: list[str], directory: Path, server: StanServer) -> str:
    """What a command prints; it must end well."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STAN_")}
    environment |= {
        "STAN_SERVER": server.url,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "clients")]),
        "XDG_CONFIG_HOME": str(directory),
        "SPARK_CONF_DIR": str(directory),
    }
    found = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 0, f"{command}\n{found.stdout}\n{found.stderr}\n{server.log()}"
    return found.stdout


@pytest.mark.timeout(600)  # a session of Spark takes a minute to start on a machine that is busy
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(path, tmp_path):
    commands, printed = told(path)
    assert printed
    (tmp_path / "spark-defaults.conf").write_text(SPARK, encoding="utf-8")
    with StanServer(tmp_path) as server:
        for command in commands:
            done([sys.executable, "-m", "stan.cli.main", *command[1:]], tmp_path, server)
        assert done([sys.executable, str(path)], tmp_path, server) == printed


def test_there_is_a_dozen_of_them():
    assert len(EXAMPLES) >= 12
