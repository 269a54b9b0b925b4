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
_STANDALONE = re.compile(r"spark://(.+)")
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
        """The settings of --conf. Raises ConfigError, and SparkUnavailableError for the master."""
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
    if not _MASTER.fullmatch(master):
        raise ConfigError(
            f"--master {master!r}: write local[*] for this machine, local[2] for two of its cores, "
            "spark://host:7077, yarn, or k8s://https://host:port."
        )
    if standalone := _STANDALONE.fullmatch(master):
        hosts = [_HOST.fullmatch(part.strip()) for part in standalone[1].split(",")]
        if not all(hosts):
            raise ConfigError(f"--master {master!r}: write spark://host:7077, several with commas.")
        _check_reachable(master, [(host[1].strip("[]"), int(host[2])) for host in hosts if host])


def _check_reachable(master: str, addresses: list[tuple[str, int]]) -> None:
    """Raise SparkUnavailableError for an unreachable master; Spark itself takes a minute."""
    for address in addresses:
        try:
            return socket.create_connection(address, _MASTER_CONNECT_TIMEOUT).close()
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
    raise SparkUnavailableError(f"Spark's master {master} cannot be reached: {reason}.")
