"""Checks --master and --conf before Spark is started, since Spark takes long to refuse them."""

from __future__ import annotations

import re
import socket

from jetspark.cli.where import pairs
from jetspark.errors import ConfigError, SparkUnavailableError

_LOCAL = re.compile(r"local(?:\[(?:\*|[1-9]\d*)(?:,\s*[1-9]\d*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[.+\]")
_STANDALONE = re.compile(r"spark://(.+)")
_HOST = re.compile(r"(\[[^\]]+\]|[^:/\[\]]+):(\d{1,5})")
_KNOCK_SECONDS = 5.0
_PREFIX = "spark."


def spark_settings(master: str, conf: list[str] | None) -> dict[str, str]:
    """The settings of --conf. Raises ConfigError, and SparkUnavailableError for the master."""
    settings = pairs("--conf", conf)
    for name in settings:
        if not name.startswith(_PREFIX):
            raise ConfigError(
                f"--conf {name}: Spark ignores settings that do not begin with {_PREFIX!r}; "
                "write spark.hadoop.NAME for one of Hadoop's."
            )
    _check_master(master)
    return settings


def _check_master(master: str) -> None:
    if standalone := _STANDALONE.fullmatch(master):
        hosts = [_HOST.fullmatch(part.strip()) for part in standalone[1].split(",")]
        if not all(hosts):
            raise ConfigError(f"--master {master!r}: write spark://host:7077, several with commas.")
        _knock(master, [(host[1].strip("[]"), int(host[2])) for host in hosts if host])
    elif not (
        _LOCAL.fullmatch(master)
        or _LOCAL_CLUSTER.fullmatch(master)
        or master == "yarn"
        or ("://" in master and not master.startswith("sc://"))  # k8s, and other cluster managers
    ):
        raise ConfigError(
            f"--master {master!r}: write local[*] for this machine, local[2] for two of its cores, "
            "spark://host:7077, yarn, or k8s://https://host:port."
        )


def _knock(master: str, addresses: list[tuple[str, int]]) -> None:
    """Raises SparkUnavailableError if it cannot be reached, which takes Spark a minute."""
    for address in addresses:
        try:
            socket.create_connection(address, _KNOCK_SECONDS).close()
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
        else:
            return
    raise SparkUnavailableError(f"Spark's master {master} cannot be reached: {reason}.")
