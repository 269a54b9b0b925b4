"""The one thing that pyproject.toml cannot say: the C kernel is optional.

Without a compiler the build goes on without it, and jetspark uses its plain-Python twin.
"""

import sysconfig

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

kernel = Extension(
    "jetspark.wire._kernel",
    [f"src/jetspark/wire/{name}.c" for name in ("_kernel", "_archive", "_json", "_json_columns")],
    depends=[f"src/jetspark/wire/{name}.h" for name in ("_archive", "_json", "_json_columns")],
    extra_compile_args=[] if sysconfig.get_platform().startswith("win") else ["-O3"],
    optional=True,
    py_limited_api=True,
)


class StableWheel(bdist_wheel):
    """One wheel for every Python from 3.11 on."""

    def finalize_options(self) -> None:
        self.py_limited_api = "cp311"
        super().finalize_options()


# The limited API is not there without the GIL (yet): that Python uses the twin.
without_gil = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
setup(
    ext_modules=[] if without_gil else [kernel],
    cmdclass={} if without_gil else {"bdist_wheel": StableWheel},
)
