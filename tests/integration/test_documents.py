"""Everything that README.md and the pages in docs/ tell somebody to type is done: commands, programs, configurations, queries.

The blocks of a page run in order, in a directory of their own, against the servers that the page starts, or against one that all
pages share and that holds a channel `orders` with a durable `billing`. Ports, addresses and directories of the text are replaced.
What cannot run here is in `elsewhere.toml`, with its reason and the test that does it; a block that is in neither place fails.
Programs and SQL for Spark run in tests/spark/test_documents_spark.py.
"""

import asyncio
import contextlib
import itertools
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import stan_client
import typer.main
from pyspark_stan.pipeline.config import parse_pipeline
from stan_protocol.scalars import GroupId, RaftIndex, Term

from stan.cli.main import app
from stan.edge.nats.nats_process import find_binary
from stan.edge.storage.data_directory import Disk
from stan.edge.storage.manifest import RecordedNodes
from stan.edge.storage.storage import Storage
from stan.log.types import Entry
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as entries
from stan.settings.config_check import examine
from stan.settings.settings import parse
from tests.kit import old_cluster
from tests.kit.certificates import Authority
from tests.kit.documents import PAGES, ROOT, Block, blocks, blocks_of, inline_commands
from tests.kit.old_store import PLAIN
from tests.kit.ports import accepts, free_port
from tests.kit.server import READY, NatsServer, StanServer, until

pytestmark = pytest.mark.timeout(300)

LANGUAGES = {"bash", "python", "conf", "toml", "sql", "text", ""}
PICTURES = {"text", ""}
COMMAND_SECONDS_MAX = 90


class Elsewhere(NamedTuple):
    """Commands that do not run here."""

    page: str
    begins: str  # how such a command begins
    reason: str
    proof: str  # the file, and behind "::" the test, that runs it or what it stands for


ELSEWHERE = tuple(
    Elsewhere(page, begins, *why)
    for page, commands in tomllib.loads((ROOT / "tests/integration/elsewhere.toml").read_text(encoding="utf-8")).items()
    for begins, why in commands.items()
)
SPARK = {"docs/spark.md", "docs/spark-sink.md", "docs/spark-recipes.md"}
"""Pages whose programs run under Spark."""
LASTING = ("stan top", "stan events", "stan lake run /data/lake orders 'orders.>'")
"""Commands that go on until somebody ends them."""
LASTING_PROGRAMS = ("direct.admin.events()",)
CODES = {"stan check": {0, 1, 2}, "stan doctor": {0, 1}}
"""Exit codes that say how the server is, which on a machine with a full disk is not well."""
AGAIN = ("stan node", "stan group", "stan cluster grow", "stan channel create", "stan channel pin ")
"""Commands that are refused for a while, until nodes know each other or a change is done."""
SIGNS = (READY, "Starting in standby mode")
"""What a server says when it is there."""
WRONG_USAGE = 2
PLACES = ("/var/lib/nats-streaming", "/var/lib/stan", "/backups", "/run/secrets", "/data/lake")
VARIABLES = {"NODE": "a", "ALICE": "secret", "OPS": "secret", "TOKEN": "0123456789abcdef", "STAN_PASSWORD": "secret"}
PORTS = ("4222", "6222", "8222", "8223")

ALL = blocks()


def is_server(command: str) -> bool:
    """Whether a command starts a server, perhaps behind variables."""
    return re.search(r"(?:^|\s)(?:\.venv/bin/)?(?:stan-server|nats-server) ", command) is not None


def elsewhere(page: str, command: str) -> bool:
    return any(entry.page == page and command.startswith(entry.begins) for entry in ELSEWHERE)


# --- nothing is left out -------------------------------------------------------------------------------------------------


def unread(block: Block) -> str:
    """Why nobody reads a block; "" if somebody does."""
    if block.language not in LANGUAGES:
        return f"{block}: what is to be done with `{block.language}`?"
    if block.language in PICTURES and any(
        re.match(r"[$ ]*(?:\.venv/bin/|stan |stan-server|import )", line) for line in block.text.splitlines()
    ):
        return f"{block}: a command or a program in a picture"
    return ""


def test_every_block_is_one_that_somebody_reads():
    assert not [told for told in map(unread, ALL) if told]
    assert len(ALL) > 50


@pytest.mark.parametrize(
    ("language", "text"),
    [("console", "$ stan pub a b\n"), ("", ".venv/bin/stan pub a b\n"), ("text", "stan pub a b\n")],
)
def test_a_block_that_nobody_reads_is_found(language, text):
    (block,) = blocks_of("page.md", f"# Page\n  ```{language}\n  {text}  ```\n")
    assert (block.heading, block.line, block.text) == ("Page", 3, text)
    assert unread(block)


def test_a_block_without_end_is_found():
    with pytest.raises(ValueError, match=r"page\.md:2"):
        list(blocks_of("page.md", "```bash\nls\n"))


def test_commands_are_read_as_a_shell_reads_them():
    block = Block("page.md", 1, "", "bash", "a --x \\\n  y   # why\n\n# nothing\nb 'c' &\n")
    assert block.commands() == ["a --x y", "b 'c' &"]


@pytest.mark.parametrize("entry", ELSEWHERE, ids=lambda entry: f"{entry.page} {entry.begins}")
def test_what_runs_elsewhere_is_there_and_is_needed(entry):
    file, _, test = entry.proof.partition("::")
    assert entry.reason
    assert (ROOT / file).is_file()
    assert not test or re.search(rf"def {test}\(", (ROOT / file).read_text(encoding="utf-8"))
    commands = [command for block in ALL if block.page == entry.page for command in block.commands()]
    assert any(command.startswith(entry.begins) for command in commands)


# --- command lines have the options that they use ------------------------------------------------------------------------

TOOL = typer.main.get_command(app) if isinstance(app, typer.Typer) else app
STAN_LINES = sorted(
    {
        part.strip()
        for block in ALL
        if block.language == "bash"
        for command in block.commands()
        for part in re.split(r"&&|\||&(?=\s|$)", command)
        if re.match(r"(?:\.venv/bin/)?stan ", part.strip())
    }
    | {command for _, command in inline_commands()}
)


def wrong_words(line: str) -> list[str]:
    """What of a command line of `stan` the command does not know: subcommands and options."""
    words = shlex.split(line, comments=True)
    while words and not words[0].endswith("stan"):
        if words[0].endswith("stan-server"):
            return list(parse(words[1:]).complaints) if "…" not in line and "<" not in line else []
        words.pop(0)
    command, context, words = TOOL, click.Context(TOOL), words[1:]
    while hasattr(command, "resolve_command") and words and not words[0].startswith("-"):
        try:
            _name, command, words = command.resolve_command(context, words)
        except Exception as error:  # noqa: BLE001 - of click's, whichever copy of it typer uses
            return [str(error) or words[0]]
        context = type(context)(command, parent=context)
    known = {name for option in command.get_params(context) for name in (*option.opts, *option.secondary_opts)}
    words = list(itertools.takewhile(lambda word: word != "--", words))
    return [
        word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known | {"-h", "--help"}
    ]


@pytest.mark.parametrize("line", STAN_LINES)
def test_command_lines_are_known(line):
    assert wrong_words(line) == []


def test_an_unknown_option_or_command_is_found():
    assert wrong_words("stan pub a b --nothing") == ["--nothing"]
    assert wrong_words("stan channel nothing")
    assert wrong_words("stan channel purge a --keep 5 --yes") == []


# --- pages are done ------------------------------------------------------------------------------------------------------


class Started(NamedTuple):
    """A process that a page has started."""

    process: subprocess.Popen[bytes]
    output: Path
    command: str


def _hear_interrupts() -> None:
    """In a new process: what a shell without job control starts in the background ignores SIGINT, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Walk:
    """One page, done from its first block to its last one."""

    def __init__(self, directory: Path, shared_url: str) -> None:
        self.directory = directory
        self.shared_url = shared_url
        self.ports: dict[str, int] = {}
        self.started: list[Started] = []
        self.nats: NatsServer | None = None
        self._numbers = itertools.count()
        self._tools = directory / "tools"
        self._tools.mkdir()
        self._make_tools()

    # --- what the text means here ------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The NATS of the servers that the page has started last; else that of the shared one."""
        return (
            f"nats://127.0.0.1:{self.ports['4222']}" if self.ports and (self.started or self.nats) else self.shared_url
        )

    def here(self, text: str) -> str:
        """A text of a page with the ports, addresses and directories of this run."""
        text = re.sub(r"nats://(?:nats\.example|10\.0\.0\.\d+|127\.0\.0\.1):4222", self.url, text)
        for place in PLACES:
            text = text.replace(place, str(self.directory / place.strip("/")))
        for name, port in self.ports.items():
            text = re.sub(rf"(?<![\d.]){name}(?!\d)", str(port), text)
        return text.replace(".venv/bin/", "")

    def environment(self) -> dict[str, str]:
        """Of every command and program of the page."""
        number = next(self._numbers)
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith("STAN_")},
            "NODE": VARIABLES["NODE"],
            "ALICE": VARIABLES["ALICE"],
            "PATH": f"{self._tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "clients", ROOT / "clients/stan_aio"))),
            "PYTHONUNBUFFERED": "1",
            "HOME": str(self.directory),
            "XDG_CONFIG_HOME": str(self.directory / f"config-{number}"),
            "STAN_SERVER": self.url,
            "STAN_CLUSTER_ID": "test-cluster",
        }

    def _make_tools(self) -> None:
        python = shlex.quote(sys.executable)
        tools = {
            "stan": f'exec {python} -m stan.cli.main "$@"',
            "stan-server": f'exec {python} -m stan.server.main "$@"',
            "python": f'exec {python} "$@"',
            "nats-server": f'exec {shlex.quote(str(find_binary()))} -a 127.0.0.1 "$@"',
        }
        if shutil.which("sqlite3") is None:
            program = "import sqlite3, sys; print(*sqlite3.connect(sys.argv[2]).executescript(sys.argv[3]))"
            tools["sqlite3"] = f'exec {python} -c "{program}" "$@"'
        for name, line in tools.items():
            (self._tools / name).write_text(f"#!/bin/sh\n{line}\n")
            (self._tools / name).chmod(0o755)

    # --- what is done ------------------------------------------------------------------------------------------------

    def do(self, block: Block) -> None:
        """Whatever its language asks for."""
        if block.language == "bash":
            self._do_commands(block)
        elif block.language == "python" and block.page not in SPARK:
            self._do_program(block)
        elif block.language == "conf":
            self._do_configuration(block)
        elif block.language == "toml":
            parse_pipeline(self.here(block.text), self.directory, {})
        elif block.language == "sql" and block.page not in SPARK:
            with contextlib.closing(sqlite3.connect(self.directory / "data/stan.db")) as database:
                # what a server has just done is in the file after a quarter of a second
                until(lambda: database.execute(block.text).fetchall(), why=lambda: f"{block}: finds nothing")

    def _do_commands(self, block: Block) -> None:
        commands = [command for command in block.commands() if not elsewhere(block.page, command)]
        for begins, prepare in PREPARATIONS.items():
            if commands and f"{block.page} {block.heading}" == begins:
                commands = prepare(self, commands)
        servers = [command for command in commands if is_server(command)]
        if any("nats-server" in command or "-ns " not in command for command in servers):
            self.end()
        if servers and not self.started:
            self.ports = {name: free_port() for name in PORTS}
        if any("-ns " in command for command in servers) and not self.started and "nats-server" not in commands[0]:
            self.nats = NatsServer(self.directory)
            self.ports["4222"] = self.nats.port
        for command in commands:
            self._do_command(block, command)
        self.end(lambda started: not started.command.endswith("&"))

    def _do_command(self, block: Block, command: str) -> None:
        plain = command.replace(".venv/bin/", "")
        for begins, prepare in BEFORE.items():
            if plain.startswith(begins):
                prepare(self)
        if is_server(command) or plain.endswith("&"):
            self._start(block, command)
            return
        for started in self.started:
            self._wait_until_ready(started)
        if plain.startswith(LASTING):
            self._watch(block, ["bash", "-c", self.here(command)])
        elif not plain.startswith("curl ") or shutil.which("curl"):
            self._run(block, command, self.environment())

    def _run(self, block: Block, command: str, environment: dict[str, str]) -> None:
        """Run a command to its end; some are refused for a while."""
        plain = command.replace(".venv/bin/", "")
        codes = next((codes for begins, codes in CODES.items() if plain.startswith(begins)), {0})
        deadline = time.monotonic() + COMMAND_SECONDS_MAX
        while True:
            done = subprocess.run(
                ["bash", "-c", self.here(command)],
                cwd=self.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS_MAX,
                check=False,
            )
            if done.returncode in codes:
                return
            told = f"{block}: {command}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}\n{self._said()}"
            assert plain.startswith(AGAIN), told
            assert done.returncode != WRONG_USAGE, told
            assert time.monotonic() < deadline, told

    def _start(self, block: Block, command: str) -> None:
        """Start what goes on beside the next commands, and wait until it is ready, or has ended well."""
        line = self.here(command.removesuffix("&"))
        if "stan-server" in line and "-ns " not in line:
            line += " -a 127.0.0.1" if " -p " in line else f" -a 127.0.0.1 -p {self.ports['4222']}"
        output = self.directory / f"output-{next(self._numbers)}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", re.sub(r"((?:^|\s))(stan-server|nats-server|stan) ", r"\1exec \2 ", line, count=1)],
                cwd=self.directory,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started = Started(process, output, command)
        self.started.append(started)
        if "nats-server" in command:
            until(lambda: accepts(self.ports["4222"]) or process.poll() is not None)
        elif "-cluster_peers" not in command:  # that one is ready once the others are there, too
            self._wait_until_ready(started)
        assert process.poll() in (None, 0), f"{block}: {command}\n{output.read_text()}"

    def _wait_until_ready(self, started: Started) -> None:
        """Return once a server says that it is ready, or has ended."""
        if "stan-server" in started.command:
            until(
                lambda: any(sign in started.output.read_text() for sign in SIGNS) or started.process.poll() is not None,
                why=self._said,
            )

    def _watch(self, block: Block, command: list[str]) -> None:
        """Run what goes on until it is ended: it shows something, and does not end by itself."""
        output = self.directory / f"output-{next(self._numbers)}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=self.environment(),
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_hear_interrupts,  # noqa: PLW1509 - it sets one signal and no more
            )
        try:
            until(lambda: self._something_happens() and (output.stat().st_size or process.poll() is not None))
            assert process.poll() is None, f"{block}: {command}\n{output.read_text()}"
            process.send_signal(signal.SIGINT)
            process.wait(COMMAND_SECONDS_MAX)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _something_happens(self) -> bool:
        """A client comes and goes, which is an event."""

        async def come_and_go() -> None:
            client = await stan_client.connect(self.url, client_id="passer-by")
            await client.close()

        asyncio.run(come_and_go())
        return True

    def _do_program(self, block: Block) -> None:
        if "faststream" in block.text:
            pytest.importorskip("faststream")
        program = self.directory / f"program-{next(self._numbers)}.py"
        program.write_text(self.here(block.text))
        if any(lasting in block.text for lasting in LASTING_PROGRAMS):
            self._watch(block, [sys.executable, str(program)])
        else:
            self._run(block, f"python {program}", self.environment())

    def _do_configuration(self, block: Block) -> None:
        file = self.directory / "stan.conf"
        file.write_text(self.here(block.text))
        found = examine(file, [], VARIABLES)
        assert (found.complaints, found.notices) == ((), ()), str(block)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _said(self) -> str:
        return "\n".join(f"--- {one.command}\n{one.output.read_text(errors='replace')[-2000:]}" for one in self.started)

    def end(self, which: Callable[[Started], bool] = lambda _: True) -> None:
        """End the processes that the page has started."""
        ending = [started for started in self.started if which(started)]
        for started in ending:
            if started.process.poll() is None:
                started.process.terminate()
        try:
            for started in ending:
                started.process.wait(30)
        finally:
            for started in ending:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(started.process.pid, signal.SIGKILL)
                started.process.wait()
            self.started = [started for started in self.started if started not in ending]
        if self.nats is not None and not self.started:
            self.nats.kill()
            self.nats = None


# --- what a page takes for granted -----------------------------------------------------------------------------------------


def three_machines(walk: Walk, commands: list[str]) -> list[str]:
    """One command for each of the machines, which are all here."""
    routes = [free_port() for _ in range(3)]
    found = []
    for number, (node, port, route) in enumerate(zip("abc", (4222, free_port(), free_port()), routes, strict=True), 1):
        line = commands[0]
        for machine, its_route in enumerate(routes, 1):
            line = line.replace(f"10.0.0.{machine}:6222", f"127.0.0.1:{its_route}")
        line = line.replace("0.0.0.0:6222", f"127.0.0.1:{route}").replace("-p 4222", f"-p {port}")
        line = line.replace("/var/lib/stan", f"machine-{number}")
        found.append(line.replace("-cluster_node_id a", f"-cluster_node_id {node}"))
    return [*found, "stan pub orders hello"]


def nodes_that_allow_changes(walk: Walk, commands: list[str]) -> list[str]:
    """Three nodes, to which others can be added, if the page has started none yet."""
    if walk.started:
        return commands
    node = "stan-server -ns nats://127.0.0.1:4222 -st FILE -dir new/{0} -clustered -cluster_node_id {0} -cluster_peers a,b,c"
    return [
        *(f"{node.format(name)} -cluster_allow_add_remove_node &" for name in "abc"),
        "stan pub orders hello",
        *commands,
    ]


def a_server_of_its_own(walk: Walk, commands: list[str]) -> list[str]:
    """One on which the page's channels are not there yet without parts."""
    return ["stan-server -st FILE -dir data/own &", *commands]


def a_survivor(walk: Walk, name: str, nodes: str, place: str = "var/lib/stan") -> None:
    """The directory of a node that has stopped, in place of what is there."""
    directory = walk.directory / place
    shutil.rmtree(directory, ignore_errors=True)
    storage = Storage.recover(Disk(directory=str(directory)), "test-cluster", 1, node_id=name, note=lambda *_: None)
    info = entries.ClusterInfo(cluster_id=b"test-cluster", raft_groups=1, nuid=b"N")
    founding = entries.MetaChange(cluster_info=info).SerializeToString()
    storage.logs[GroupId(0)].append([Entry(RaftIndex(1), Term(1), Kind.META, founding)])
    storage.logs[GroupId(0)].sync()
    for member in storage.members.values():
        member.hard_state.mark_readmitted()
    assert storage.directory is not None
    storage.directory.note_nodes(RecordedNodes([*nodes], 0, [], len(nodes), belongs=True))
    asyncio.run(storage.close(clean=True))


def the_only_survivor(walk: Walk, commands: list[str]) -> list[str]:
    a_survivor(walk, "a", "abc")
    return commands


def one_of_two_survivors(walk: Walk, commands: list[str]) -> list[str]:
    """The other one has told what it has."""
    a_survivor(walk, "b", "abcde", "elsewhere")
    a_survivor(walk, "a", "abcde")
    return ["stan cluster rescue elsewhere --save b.json", *commands]


PREPARATIONS: dict[str, Callable[[Walk, list[str]], list[str]]] = {
    "docs/cluster.md Three machines": three_machines,
    "docs/cluster.md Add and remove nodes": nodes_that_allow_changes,
    "docs/features/read-replicas.md Read replicas": nodes_that_allow_changes,
    "docs/features/moving-channels.md Pin a channel to a group": nodes_that_allow_changes,
    "docs/features/parts.md Channels with parts": a_server_of_its_own,
    "docs/features/commit-levels.md Acks before the disk": nodes_that_allow_changes,
    "docs/features/growing.md More groups": nodes_that_allow_changes,
    "docs/rescue.md A majority is gone for good": the_only_survivor,
    "docs/rescue.md Survivors on several machines": one_of_two_survivors,
}


def an_old_store(walk: Walk) -> None:
    old = walk.directory / "var/lib/nats-streaming"
    if not old.exists():
        shutil.copytree(PLAIN, old)
        old_cluster.unpack("snapshots", walk.directory)


def no_other_orders(walk: Walk) -> None:
    """Channels to be restored do not exist."""

    async def delete() -> None:
        async with stan_client.Direct(walk.url) as direct:
            for channel in await direct.admin.channels("orders.>"):
                await direct.admin.delete_channel(channel.name)

    asyncio.run(delete())


def a_durable(walk: Walk) -> None:
    """The durable is there, though commands before have deleted it."""

    async def subscribe() -> None:
        client = await stan_client.connect(walk.url, client_id="explained")
        subscription = await client.subscribe(
            "orders", durable="billing", start=stan_client.everything(), manual_acks=True
        )
        await subscription.close()
        await client.close()

    asyncio.run(subscribe())


def certificates(walk: Walk) -> None:
    authority = Authority(walk.directory)
    authority.sign("server")


def credentials(walk: Walk) -> None:
    (walk.directory / "ops.creds").write_text("")


def a_key(walk: Walk) -> None:
    secrets = walk.directory / "run/secrets"
    secrets.mkdir(parents=True)
    (secrets / "stan.key").write_text("0123456789abcdef" * 4)
    shutil.rmtree(walk.directory / "var/lib/stan", ignore_errors=True)


def the_brokers_login(walk: Walk) -> None:
    """What the page asks for before the accounts can be printed."""
    file = walk.directory / "stan.conf"
    file.write_text(file.read_text().replace("streaming {", "streaming {\n  username: broker, password: secret", 1))


def dead_letters(walk: Walk) -> None:
    """Messages as the broker would have moved them."""

    async def give_up() -> None:
        async with await stan_client.connect(walk.url, client_id="broker") as client:
            for number in range(1, 51):
                headers = {"stan-channel": b"orders", "stan-sequence": b"%d" % number, "stan-durable": b"billing"}
                await client.publish("orders.dlq", b"{}", headers=headers)

    asyncio.run(give_up())


BEFORE: dict[str, Callable[[Walk], None]] = {
    "stan migrate": an_old_store,
    "stan restore": no_other_orders,
    "stan config accounts": the_brokers_login,
    "stan context add": credentials,
    "stan dlq list": dead_letters,
    "stan explain": a_durable,
    "stan-server -st FILE -dir /var/lib/stan --tlsverify": certificates,
    "NATS_STREAMING_ENCRYPTION_KEY": a_key,
}


async def fill(url: str) -> None:
    """What an operator looks at: channels with messages, and a durable that is offline and has acked nothing."""
    async with asyncio.timeout(60):
        client = await stan_client.connect(url, client_id="acct")
        for channel, count in (("orders", 30), ("orders.eu", 5), ("orders.old", 5)):
            for number in range(count):
                await client.publish(channel, b'{"number": %d}' % number)
        subscription = await client.subscribe(
            "orders", durable="billing", start=stan_client.everything(), max_in_flight=25, manual_acks=True
        )
        for _ in range(25):
            await anext(subscription)
        await subscription.close()
        await client.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the server that pages use which start none."""
    with StanServer(tmp_path_factory.mktemp("shared")) as server:
        asyncio.run(fill(server.url))
        yield server.url


DONE = list(dict.fromkeys(block.page for block in ALL if block.language not in PICTURES))


@pytest.mark.parametrize("page", DONE)
def test_a_page_can_be_done_from_its_beginning_to_its_end(page, shared, tmp_path):
    walk = Walk(tmp_path, shared)
    try:
        for block in ALL:
            if block.page == page:
                walk.do(block)
    finally:
        walk.end()


def test_pages_are_those_of_the_repository():
    assert {str(path.relative_to(ROOT)) for path in PAGES} >= {"README.md", "docs/operating.md", "docs/spark.md"}
