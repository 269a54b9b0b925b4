"""Where PyIceberg may take its configuration from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from jetspark.errors import ConfigError

_FILE: Final = ".pyiceberg.yaml"


def check_configuration() -> None:
    """Raise ConfigError for a configuration that PyIceberg would take from the current folder,
    which is wherever somebody happened to run a command: it names programs that PyIceberg calls.

    PyIceberg reads it as soon as it is imported.
    """
    folders = (os.environ.get("PYICEBERG_HOME"), Path.home())
    own = [Path(folder, _FILE) for folder in folders if folder]
    local = Path(_FILE).absolute()
    if local.is_file() and local not in own:
        raise ConfigError(
            f"There is a {_FILE} in the current folder, which PyIceberg would take for "
            f"your configuration: {local}. If it is yours, set PYICEBERG_HOME={local.parent}; "
            "otherwise run this in another folder."
        )
