"""The flags --master, --conf and --quiet, checked before Spark starts."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from jetspark.cli.flags import Repeated, parse_pairs
from jetspark.errors import ConfigError, SparkUnavailableError

_MASTER = re.compile(r"local(-cluster)?(\[.+\])?|yarn|(?!sc:)\w+://.+")
_STANDALONE = "spark://"
_HOST = re.compile(r"(\[[^\]]+\]|[^:/\[\]]+):(\d{1,5})")
_MASTER_CONNECT_TIMEOUT = 5.0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SparkFlags:
    """The flags --master, --conf and --quiet."""

    master: str = "local[*]"
    """Spark's master."""
    conf: Repeated = None
    """Setting of Spark, as name=value; may be given again."""
    quiet: Annotated[bool, Parameter(name=("--quiet", "-q"), negative=())] = False
    """Print errors only."""

    def settings(self) -> dict[str, str]:
        """The settings of --conf, by name; also checks --master.

        Raises ConfigError, and SparkUnavailableError for a master that cannot be reached.
        """
        settings = parse_pairs("--conf", self.conf)
        for name in settings:
            if not name.startswith("spark."):
                raise ConfigError(
                    f"--conf {name}: Spark ignores settings that do not begin with 'spark.'; "
                    "write spark.hadoop.NAME for one of Hadoop's."
                )
        _check_master(self.master)
        return settings


LOCAL = SparkFlags()


def _check_master(master: str) -> None:
    """Check the text of --master, and that a standalone master (spark://) can be reached.

    Spark itself takes a minute to find out. Raises ConfigError for a text of an unknown form, and
    SparkUnavailableError if none of the master's addresses accepts a connection.
    """
    if not _MASTER.fullmatch(master):
        raise ConfigError(
            f"--master {master!r}: write local[*] for this machine, local[2] for two of its cores, "
            "spark://host:7077, yarn, or k8s://https://host:port."
        )
    if not master.startswith(_STANDALONE):
        return None
    addresses = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host = _HOST.fullmatch(address.strip())
        if host is None:
            raise ConfigError(f"--master {master!r}: write spark://host:7077, several with commas.")
        addresses.append((host[1].strip("[]"), int(host[2])))
    reason = ""
    for target in addresses:
        try:
            # A standalone master may have several addresses; one that answers is enough.
            return socket.create_connection(target, _MASTER_CONNECT_TIMEOUT).close()
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
    raise SparkUnavailableError(f"Spark's master {master} cannot be reached: {reason}.")
