"""Starts a Spark session for a pipeline, and ends it with all of its processes at the end of a `with` block.

Spark's JVM runs in a process session of its own, so that Ctrl-C reaches only the driver, which then stops the JVM in order. The
JVM prints to our standard error or, if that is a terminal, to an unnamed file, the end of which is shown if Spark cannot start.
If the driver is killed, the JVM's standard input ends, and so does the JVM.
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

from pyspark_stan.errors import NoJavaError
from pyspark_stan.java import ensure_java
from pyspark_stan.pipeline.config import Pipeline

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

INSTALL: Final = "pip install 'pyspark<5' pyarrow 'pandas<3'"
END_WAIT_S: Final = 30.0
"""Time that the JVM has to end before it is killed."""
WORKERS_WAIT_S: Final = 10.0
"""Time that its Python workers have to end after it."""
LOG_LINES_SHOWN: Final = 15
"""Lines of the JVM's output that are shown if Spark cannot start."""
_POLL_S: Final = 0.02

QUIET: Final = {
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "60s",
}
_CHECKPOINTS: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
"""Files of a checkpoint on a disk of this machine are written and renamed by the JVM itself. Spark's default, which takes HDFS's
way of renaming, starts helper processes for each of them there, and that is most of the time of a small batch."""
_ALONE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""With a local master: the driver listens only on this machine."""
_SOCKET_PATH_MAX: Final = 103
_SOCKET_NAME: Final = 48
"""Bytes that the path of a Unix socket may have, and bytes that Spark appends to the directory's path."""


class SparkMissingError(Exception):
    """Spark cannot run here; the text names the package to install, or the failure."""


def require_spark() -> None:
    """Return if Spark can be started here.

    Raises:
        SparkMissingError: pyspark, pyarrow or Java is missing.
    """
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise SparkMissingError(f"{' and '.join(missing)} cannot be imported by this Python: {INSTALL}")
    try:
        ensure_java()
    except NoJavaError as error:
        raise SparkMissingError(str(error)) from None


def conf_of(pipeline: Pipeline) -> dict[str, str]:
    """Return Spark's configuration: our defaults, overridden by the file's `spark.conf`."""
    local = pipeline.spark.master.startswith("local")
    return {
        **QUIET,
        **(_ALONE if local else {}),
        # As many tasks as cores, because a task's fixed cost dominates a small batch. A checkpoint keeps its first number.
        **({"spark.sql.shuffle.partitions": str(os.cpu_count() or 1)} if local else {}),
        **(_CHECKPOINTS if local and _on_disk(pipeline) else {}),
        # Without pandas Spark cannot use Arrow for Python functions, and would warn about each of them.
        **({} if importlib.util.find_spec("pandas") else {"spark.sql.execution.pythonUDF.arrow.enabled": "false"}),
        **pipeline.spark.conf,
        "spark.master": pipeline.spark.master,
        "spark.app.name": pipeline.name,
    }


def _on_disk(pipeline: Pipeline) -> bool:
    """Return True if the checkpoint is on a file system of this machine: no other one is configured."""
    place = pipeline.checkpoint
    return place.startswith(("/", "file:")) and "spark.hadoop.fs.defaultFS" not in pipeline.spark.conf


@contextlib.contextmanager
def spark_session(conf: Mapping[str, str]) -> Iterator["SparkSession"]:
    """Yield a session with the configuration *conf*; after the block all its processes and temporary files are gone.

    Raises:
        SparkMissingError: Spark cannot be started.
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
            with contextlib.suppress(Exception):  # the JVM may have died; `_end_of_jvm` ends the rest of it
                context.stop()


def _own_files(directory: Path, conf: Mapping[str, str]) -> dict[str, str]:
    """Return settings that put Spark's temporary files into *directory*, and with a local master the Unix sockets to its workers,
    if their paths are short enough. Over TCP, small packets would wait for one another, 40 ms a batch."""
    settings = {"spark.sql.warehouse.dir": str(directory / "warehouse")}
    if conf["spark.master"].startswith("local"):
        settings["spark.local.dir"] = str(directory)
        fits = len(os.fsencode(directory)) + _SOCKET_NAME <= _SOCKET_PATH_MAX
        settings["spark.python.unix.domain.socket.enabled"] = "true" if fits else "false"
    return settings


@contextlib.contextmanager
def _environment(directory: Path, conf: Mapping[str, str]) -> Iterator[None]:
    """With a local master, set environment variables for the start of the JVM, unless the user has set them.

    SPARK_HOME becomes *directory*, with links to Spark's programs and jars but without Spark's zipped copy of pyspark: workers
    start a second faster with the installed package.
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
    """Start a JVM, appending its gateway to *jvm*, and Spark in it."""
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
    """Restore the handler of SIGINT after the block: Spark's own handler would cancel all jobs at any moment."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _end_of_jvm() -> Iterator[list[Any]]:
    """Yield a list for the gateway of a JVM, and end this JVM after the block."""
    jvm: list[Any] = []
    try:
        yield jvm
    finally:
        if jvm:
            from pyspark import SparkContext  # noqa: PLC0415

            _end(jvm[0])
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - so that a later session starts a new JVM


def jvm_pid(spark: "SparkSession") -> int:
    """Return the process id of Spark's JVM."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - Spark has no public name for it
    return int(gateway.proc.pid)


def first_line(error: BaseException) -> str:
    """Return the first line of the error's text, without the Java stack trace after it."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


def _end_of(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-LOG_LINES_SHOWN:])


def _end(gateway: Any) -> None:
    """End the JVM by closing its input, and wait for it and its workers; kill those that do not end in time."""
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
    """Return the running processes of the process session that *leader* began; none on a platform without /proc."""
    return [pid for pid, _parent, session in _processes() if session == leader]


def children_of(parent: int) -> list[int]:
    """Return the running processes that *parent* has started; none on a platform without /proc."""
    return [pid for pid, its_parent, _session in _processes() if its_parent == parent]


def _processes() -> Iterator[tuple[int, int, int]]:
    """Yield the id, the parent's id and the session's id of each running process."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process may have ended meanwhile
            state, parent, _group, session = stat.read_text().rpartition(")")[2].split()[:4]
            if state not in "ZX":
                yield int(stat.parent.name), int(parent), int(session)
