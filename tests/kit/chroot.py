"""A bare Debian with Python and nothing else, into which the image's steps and our wheels go: containers without containers.

Needs root and debootstrap, takes minutes, and is asked for: STAN_CHROOT names a directory where the Debian is, or is to be made.
The suite is that of STAN_CHROOT_SUITE, else SUITE: `forky` has another Python.
"""

import os
import shutil
import socket
from pathlib import Path

import pytest

from tests.kit.distributions import run

SUITE = "trixie"
PACKAGES = "python3,python3-venv,ca-certificates"
CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")


def asked_for() -> bool:
    """Whether tests are to run in a Debian of their own."""
    return "STAN_CHROOT" in os.environ


def bare_debian(to: Path) -> Path:
    """A copy of the Debian at *to*, which must not exist; the first call makes what is copied."""
    if not asked_for():
        pytest.skip("runs where STAN_CHROOT names a directory for a Debian of its own (tests/README.md)")
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs root and debootstrap")
    base = Path(os.environ["STAN_CHROOT"])
    if not base.exists():
        making = base.with_suffix(".making")
        suite = os.environ.get("STAN_CHROOT_SUITE", SUITE)
        where = (making, "http://deb.debian.org/debian", "sid")  # the script of all suites of today
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, *where, cwd=base.parent)
        making.rename(base)
    run("cp", "--archive", "--reflink=auto", base, to, cwd=base.parent)
    if (Path("/") / CERTIFICATES).exists():  # a proxy on the way to the index may have one of its own
        shutil.copy(Path("/") / CERTIFICATES, to / CERTIFICATES)
    (to / "etc/apt/apt.conf.d/snapshot").write_text(
        'Acquire::Check-Valid-Until "false";\n'
    )  # of a mirror that stands still
    (to / "etc/hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")  # Spark looks its own name up
    (to / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    return to
