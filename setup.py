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
kernel = Extension(
    "jetspark.wire._kernel",
    [str(source) for source in sorted(WIRE.glob("*.c"))],
    depends=[str(header) for header in WIRE.glob("*.h")],
    extra_compile_args=[] if sysconfig.get_platform().startswith("win") else ["-O3"],
    optional=wanted != "c",
    py_limited_api=True,
)


class StableWheel(bdist_wheel):
    """One wheel for every Python from 3.11 on."""

    def finalize_options(self) -> None:
        self.py_limited_api = "cp311"
        super().finalize_options()


# The limited API is not there without the GIL (yet): that Python uses the twin.
pure = wanted == "python" or bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
# A package index has the README alone, so links to other files would lead nowhere.
readme, _, _ = Path("README.md").read_text("utf-8").partition("\n## More\n")
setup(
    long_description=re.sub(r"\[([^]]+)\]\((?!https?:)[^)]+\)", r"\1", readme),
    long_description_content_type="text/markdown",
    ext_modules=[] if pure else [kernel],
    cmdclass={} if pure else {"bdist_wheel": StableWheel},
)
