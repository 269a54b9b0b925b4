"""What pyproject.toml cannot say: the C kernel is optional, and what package indexes show.

Without a compiler the build goes on without it, and jetspark uses its plain-Python twin. While
building, JETSPARK_KERNEL=python leaves the C kernel out, and JETSPARK_KERNEL=c fails without it.
"""

import os
import re
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

WIRE = Path("src/jetspark/wire")

wanted = os.environ.get("JETSPARK_KERNEL")
# It has no limited API before 3.15, and the C kernel never ran there: it is built only on demand.
free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
pure = wanted == "python" or (free_threaded and wanted != "c")
kernel = Extension(
    "jetspark.wire._kernel",
    [str(source) for source in sorted(WIRE.glob("*.c"))],
    depends=[str(header) for header in WIRE.glob("*.h")],
    define_macros=[("Py_GIL_DISABLED", "1")] if free_threaded else [],
    extra_compile_args=[] if sysconfig.get_platform().startswith("win") else ["-O3"],
    optional=wanted != "c",
    py_limited_api=not free_threaded,
)


class StableWheel(bdist_wheel):
    """One wheel for every Python from 3.11 on."""

    def finalize_options(self) -> None:
        self.py_limited_api = "cp311"
        super().finalize_options()


# A package index has the README alone, so links to other files would lead nowhere.
readme, _, _ = Path("README.md").read_text("utf-8").partition("\n## More\n")
setup(
    long_description=re.sub(r"\[([^]]+)\]\((?!https?:)[^)]+\)", r"\1", readme),
    long_description_content_type="text/markdown",
    ext_modules=[] if pure else [kernel],
    cmdclass={} if pure or free_threaded else {"bdist_wheel": StableWheel},
)
