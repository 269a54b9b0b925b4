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
    places = (os.environ.get("PYICEBERG_HOME"), Path.home())
    own = [Path(one, _FILE) for one in places if one]
    here = Path(_FILE).absolute()
    if here.is_file() and here not in own:
        raise ConfigError(
            f"There is a {_FILE} in the current folder, which PyIceberg would take for "
            f"your configuration: {here}. If it is yours, set PYICEBERG_HOME={here.parent}; "
            "otherwise run this in another folder."
        )
