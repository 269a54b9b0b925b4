"""The names of an option on each surface, derived from its name in Python, as `on_bad_record`.

A pipeline file has the name in Python, Spark `onBadRecord`, and the command line `--on-bad-record`.
"""

from __future__ import annotations

_SPARK = {"creds": "credentials", "nkey_seed": "nkeySecret", "jwt": "jwtToken"}
"""Other names in Spark, which masks values whose names contain credential, secret or token."""
_FLAGS = {
    "servers": "server",  # mostly one; the nats command calls it so, too
    **dict.fromkeys(("path", "catalog", "table"), "to"),  # where the rows go, as one text
    # A sequence, a time or an age.
    **dict.fromkeys(("starting_offsets", "starting_timestamp"), "start"),
    **dict.fromkeys(("ending_offsets", "ending_timestamp"), "end"),
}
"""Other names of flags."""
_ARGUMENTS = {"stream": "STREAM"}
"""Options that are arguments of commands."""


def spark_name(option: str) -> str:
    """An option's name in Spark: `on_bad_record` becomes `onBadRecord`."""
    first, *further_words = option.split("_")
    return _SPARK.get(option) or first + "".join(map(str.capitalize, further_words))


def in_spark(option: str) -> str:
    """An option as Spark's messages mention it: `on_bad_record` becomes `'onBadRecord'`."""
    return repr(spark_name(option))


def flag_name(option: str) -> str:
    """The name of an option's flag: `on_bad_record` becomes `on-bad-record`."""
    return _FLAGS.get(option, option).replace("_", "-")


def on_command_line(option: str) -> str:
    """An option as the command line mentions it: `--on-bad-record`, or an argument (`STREAM`)."""
    return _ARGUMENTS.get(option) or f"--{flag_name(option)}"


def switch_on_command_line(option: str, on: bool) -> str:
    """How to switch an option on or off on the command line: `give --merge-schema`."""
    return f"give --{'' if on else 'no-'}{flag_name(option)}"
