"""The compiled kernels; everything else about the build is in pyproject.toml.

Promises that a build succeeds without a C compiler or Cython: the kernels are left out then, and their Python twins
run instead. Never leaves C files in the source tree. With STAN_PURE=1 no kernel is tried, and the wheel is one for every
machine (py3-none-any).
"""

import os

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError


class BuildKernels(build_ext):
    """Builds the kernels if possible; setuptools' own class calls Cython when that is installed."""

    def build_extension(self, ext: Extension) -> None:
        """Turn any failure into the one that `optional` forgives."""
        try:
            super().build_extension(ext)
        except Exception as problem:
            raise CompileError(f"{ext.name} is left out: {problem}") from problem


def kernel(name: str, source: str) -> Extension:
    """A top-level module, so that a source tree that shadows the installed package still finds it."""
    extension = Extension(
        name,
        [source],
        depends=["kernel/wire_c.pxd"],
        extra_compile_args=["-O3", "-g0"] if os.name == "posix" else [],
        optional=True,
    )
    extension.cython_c_in_temp = True
    extension.cython_include_dirs = ["kernel"]
    return extension


KERNELS = [kernel("_stan_client_kernel", "kernel/client.pyx"), kernel("_stan_rows_kernel", "kernel/rows.pyx")]
PURE = os.environ.get("STAN_PURE") == "1"

setup(ext_modules=[] if PURE else KERNELS, cmdclass={"build_ext": BuildKernels})
