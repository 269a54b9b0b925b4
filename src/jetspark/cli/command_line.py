"""The command line as a page or a log may show it: without secrets."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from jetspark.masking import MASK, is_secret_name, mask_users


def show_command(arguments: Iterable[str]) -> str:
    """The command line of these arguments, as one types it. Values of options for secrets, and of
    NAME=VALUE, are masked, and so are users in URLs."""
    return shlex.join(["jetspark", *_masked(arguments)])


def _masked(arguments: Iterable[str]) -> Iterator[str]:
    is_secret = False
    for argument in arguments:
        is_flag = argument.startswith("--")
        if is_flag:
            name, is_given, value = argument.partition("=")
            is_secret = is_secret_name(name) and not is_given
            shown = MASK if is_secret_name(name) else _mask_value(value)
            yield f"{name}={shown}" if is_given else argument
        else:
            yield MASK if is_secret else _mask_value(argument)
            is_secret = False


def _mask_value(text: str) -> str:
    """A text without secrets: what follows the name in NAME=VALUE, and users of URLs."""
    name, is_given, _ = text.partition("=")
    return f"{name}={MASK}" if is_given else mask_users(text)
