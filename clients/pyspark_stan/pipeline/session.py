"""A Spark session of our own: started with what a pipeline needs, and gone with all of its processes when the block ends.

Spark's JVM is in a session of its own, so that Ctrl-C reaches the driver alone, which then stops it in order. What it prints goes
to our standard error, but where that is a terminal to an unnamed file, whose end is told when Spark cannot start. If the driver
is killed, the JVM sees its input end, and ends too.
"""

import contextlib
import importlib.util
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from pyspark_stan.java import NoJavaError, ensure_java
from pyspark_stan.pipeline.config import Pipeline

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

INSTALL: Final = "pip install 'stan-broker[spark]'"
END_WAIT_S: Final = 30.0
WORKERS_WAIT_S: Final = 10.0
LOG_LINES_SHOWN: Final = 15
_POLL_S: Final = 0.02

QUIET: Final = {
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "60s",
}
_ALONE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""On one machine: reached by nobody else."""
_SOCKET_PATH_MAX: Final = 103
_SOCKET_NAME: Final = 48
"""Bytes that the path of a Unix socket may have, and those that Spark puts behind the directory."""


class SparkMissingError(Exception):
    """Spark cannot run here; the text says what to install or to look at."""


def require_spark() -> None:
    """Return if Spark can be started here.

    Raises:
        SparkMissingError: pyspark, what it needs, or Java is not there.
    """
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkMissingError(f"{' and '.join(missing)} cannot be imported by this Python: {INSTALL}")
    try:
        ensure_java()
    except NoJavaError as error:
        raise SparkMissingError(str(error)) from None


def conf_of(pipeline: Pipeline) -> dict[str, str]:
    """Spark's configuration: ours, over which the file's goes."""
    local = pipeline.spark.master.startswith("local")
    return {
        **QUIET,
        **(_ALONE if local else {}),
        # As many tasks as cores: a task's fixed cost is most of a small batch. A checkpoint keeps what it was made with.
        **({"spark.sql.shuffle.partitions": str(os.cpu_count() or 1)} if local else {}),
        # Spark would warn about each Python function that it cannot run this way.
        **({} if importlib.util.find_spec("pandas") else {"spark.sql.execution.pythonUDF.arrow.enabled": "false"}),
        **pipeline.spark.conf,
        "spark.master": pipeline.spark.master,
        "spark.app.name": pipeline.name,
    }


@contextlib.contextmanager
def spark_session(conf: Mapping[str, str]) -> Iterator["SparkSession"]:
    """A session with that configuration; all processes and files of it are gone behind the block.

    Raises:
        SparkMissingError: it cannot be started.
    """
    require_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - not installed everywhere

    with (
        tempfile.TemporaryDirectory(prefix="stan-spark-", ignore_cleanup_errors=True) as directory,
        _end_of_jvm() as jvm,
    ):
        with _environment(Path(directory), conf):
            context = _start({**_own_files(Path(directory), conf), **conf, **_java_options(Path(directory), conf)}, jvm)
        try:
            yield SparkSession(context)
        finally:
            with contextlib.suppress(Exception):  # a JVM that has died; what is left of it is ended below
                context.stop()


def _own_files(directory: Path, conf: Mapping[str, str]) -> dict[str, str]:
    """Where Spark puts what nobody needs afterwards; sockets to its workers too, if their paths are not too long there.

    Small messages over TCP would wait for one another, 40 ms a batch.
    """
    found = {"spark.sql.warehouse.dir": str(directory / "warehouse")}
    if conf["spark.master"].startswith("local"):
        found["spark.local.dir"] = str(directory)
        fits = len(os.fsencode(directory)) + _SOCKET_NAME <= _SOCKET_PATH_MAX
        found["spark.python.unix.domain.socket.enabled"] = "true" if fits else "false"
    return found


@contextlib.contextmanager
def _environment(directory: Path, conf: Mapping[str, str]) -> Iterator[None]:
    """What a JVM of this machine alone is started with, unless the user says otherwise.

    Its home is without Spark's copy of pyspark, which is source in a zip: workers start a second faster with the installed one.
    """
    import pyspark  # noqa: PLC0415 - not installed everywhere

    ours = {"SPARK_HOME": str(directory), "SPARK_LOCAL_IP": "127.0.0.1"}
    ours = {name: value for name, value in ours.items() if name not in os.environ}
    if not conf["spark.master"].startswith("local"):
        ours = {}
    for name in ("bin", "jars"):
        (directory / name).symlink_to(Path(pyspark.__file__).parent / name)
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def _java_options(directory: Path, conf: Mapping[str, str]) -> dict[str, str]:
    key = "spark.driver.extraJavaOptions"
    return {key: f"-Djava.io.tmpdir={directory} -XX:-UsePerfData {conf.get(key, '')}".strip()}


def _start(conf: Mapping[str, str], jvm: list[Any]) -> "SparkContext":
    """Start a JVM, which is put into *jvm*, and Spark in it."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - not installed everywhere
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    settings = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    with tempfile.TemporaryFile() as log, _signals_kept():
        place = log if sys.stderr.isatty() else sys.stderr
        try:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                settings, {"stdout": place, "stderr": place, "start_new_session": True}
            )
            jvm.append(gateway)
            return SparkContext(conf=settings, gateway=gateway)
        except Exception as error:
            raise SparkMissingError(f"Spark does not start: {first_line(error)}\n{_end_of(log)}".rstrip()) from error


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Put back the handler of SIGINT: Spark's own would cancel all jobs in the middle of whatever we do."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _end_of_jvm() -> Iterator[list[Any]]:
    """Takes a JVM, and ends it behind the block."""
    jvm: list[Any] = []
    try:
        yield jvm
    finally:
        if jvm:
            from pyspark import SparkContext  # noqa: PLC0415

            _end(jvm[0])
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - so that a later session starts anew


def jvm_pid(spark: "SparkSession") -> int:
    """The process that Spark runs in."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - it is told nowhere else
    return int(gateway.proc.pid)


def first_line(error: BaseException) -> str:
    """What went wrong, without the trace that Java puts behind it."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


def _end_of(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-LOG_LINES_SHOWN:])


def _end(gateway: Any) -> None:
    """Let the JVM end as it does when its driver has gone, and wait for it and its workers; kill what does not end."""
    process = gateway.proc
    with contextlib.suppress(Exception):
        gateway.shutdown()
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(END_WAIT_S)
    except Exception:  # noqa: BLE001 - too late, or a second signal came meanwhile
        process.kill()
        process.wait()
    deadline = time.monotonic() + WORKERS_WAIT_S
    while workers := session_members(process.pid):
        if time.monotonic() > deadline:
            for pid in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return
        time.sleep(_POLL_S)


def session_members(leader: int) -> list[int]:
    """Processes of the session that *leader* began, without those that have ended; none where there is no /proc."""
    return [pid for pid, _parent, session in _processes() if session == leader]


def children_of(parent: int) -> list[int]:
    """Processes that *parent* has started and that have not ended; none where there is no /proc."""
    return [pid for pid, its_parent, _session in _processes() if its_parent == parent]


def _processes() -> Iterator[tuple[int, int, int]]:
    """Of each process its id, its parent's and its session's."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            state, parent, _group, session = stat.read_text().rpartition(")")[2].split()[:4]
            if state not in "ZX":
                yield int(stat.parent.name), int(parent), int(session)
