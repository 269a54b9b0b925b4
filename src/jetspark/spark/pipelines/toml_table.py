"""Tables of a TOML file, whose mistakes are reported with the file's name and the line.

A key is taken out of its table when it is read, so what is left are options, or unknown keys.
`${NAME}` in a text stands for the environment variable NAME, so that secrets need not be in the
file.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from jetspark.errors import ConfigError, JetsparkError
from jetspark.files import read_small_text
from jetspark.nearest import did_you_mean_or_list, nearest_name
from jetspark.options.names import spark_name
from jetspark.options.parsers import join_names
from jetspark.tables.formats import STORAGE

_HEADER = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]")
_KEY_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|[^."'\s])+""")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w.\s-])+?)\s*=""")
_SQL_NAME = re.compile(r"[A-Za-z_]\w*")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SYNTAX_ERROR = re.compile(r"(.*) \(at line (\d+), column \d+\)")
_MIN_SIMILARITY = 0.8
"""Similarity to one of our keys from which an option of another format counts as misspelled."""
_TYPE_NAMES = {dict: "a table", str: "a text", bool: "true or false"}


@dataclass(frozen=True)
class KeyLines:
    """The line numbers of a TOML file's tables and keys, for error messages; empty for a pipeline
    without a file.

    They are read from the text, since Python's TOML parser keeps no positions.
    """

    file: str = ""
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, file: str, text: str) -> KeyLines:
        """Find the line numbers of all tables and keys in the text of a TOML file. A line within a
        multi-line text may be mistaken for a key, which is harmless: nobody asks for it."""
        lines: dict[tuple[str, ...], int] = {}
        table: tuple[str, ...] = ()
        counts: Counter[tuple[str, ...]] = Counter()
        for number, line in enumerate(text.splitlines(), 1):
            key_path: tuple[str, ...] = ()
            if header := _HEADER.match(line):
                table = key_path = _split_key(header[1])
                # [[tables]] is one of a list of tables; its path ends with its number there.
                if line.lstrip().startswith("[["):
                    counts[table] += 1
                    table = key_path = (*table, str(counts[table] - 1))
            elif key := _KEY.match(line):
                key_path = (*table, *_split_key(key[1]))
            for length in range(1, len(key_path) + 1):  # [a.b] begins a, too
                lines.setdefault(key_path[:length], number)
        return cls(file, lines)

    def line(self, key_path: tuple[str, ...]) -> int | None:
        """The line number of a key or, if it has none, of the innermost table around it that has
        one; None if there is none. `key_path`: as ("sinks", "orders", "path")."""
        for length in range(len(key_path), 0, -1):
            if (line := self.lines.get(key_path[:length])) is not None:
                return line
        return None

    def located(self, key_path: tuple[str, ...], sentence: str) -> str:
        """Put the name of the file and the line of a key before an error message."""
        if not self.file:
            return sentence
        line = self.line(key_path)
        return f"{self.file}{'' if line is None else f':{line}'}: {sentence}"


def _split_key(dotted: str) -> tuple[str, ...]:
    """Split a TOML key at its dots, outside of quotes: `a."b.c"` has the parts a and b.c."""
    return tuple(part.strip("\"'") for part in _KEY_PART.findall(dotted))


def is_list_of_texts(value: Any) -> bool:
    """Whether a value of a TOML file is a list of strings, which may be empty."""
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def is_list_of_one_text(value: Any) -> bool:
    """Whether a value of a TOML file is a list of one string."""
    return is_list_of_texts(value) and len(value) == 1


@dataclass(frozen=True)
class TomlTable:
    """A table of a TOML file while it is read: the keys that were not taken out of it yet, and its
    place in the file for error messages."""

    key_lines: KeyLines
    environment: Mapping[str, str] = field(repr=False)
    keys: dict[str, Any]
    key_path: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, environment: Mapping[str, str]) -> TomlTable:
        """Read a TOML file; returns its outermost table. `environment`: variables for `${NAME}` in
        its texts. Raises ConfigError."""
        try:
            text = read_small_text(path)
            keys = tomllib.loads(text)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not UTF-8 text.") from None
        except tomllib.TOMLDecodeError as error:
            match = _SYNTAX_ERROR.match(str(error))
            at, reason = (f":{match[2]}", match[1]) if match else ("", str(error))
            raise ConfigError(f"{path}{at}: this is not TOML: {reason}.") from None
        return cls(KeyLines.read(str(path), text), environment, keys)

    @property
    def name(self) -> str:
        """The last part of the table's path in the file: `orders` for [sources.orders]."""
        return self.key_path[-1]

    def inner(self, key: str, keys: dict[str, Any]) -> TomlTable:
        """A table within this one, with these keys."""
        return replace(self, keys=dict(keys), key_path=(*self.key_path, key))

    def take_tables(self, key: str) -> dict[str, TomlTable]:
        """Take the tables below a key, as [sources.orders] and [sources.items] below `sources`, by
        their names. Raises ConfigError for a name that SQL cannot have."""
        outer, tables = self.inner(key, self.take(key, {})), {}
        for name, keys in outer.keys.items():
            if not _SQL_NAME.fullmatch(name):
                outer.fail(name, f"{name!r} cannot be a name in SQL.")
            if not isinstance(keys, dict):
                outer.fail(name, f"write [{key}.{name}] and its keys below.")
            tables[name] = outer.inner(name, keys)
        return tables

    def take(self, key: str, default: Any = None) -> Any:
        """Take the value of a key, as the file has it."""
        return self.keys.pop(key, default)

    def take_text(self, key: str, default: Any = None) -> str:
        """Take a text, which may be a number in the file."""
        return self.text_of(key, self.take(key, default))

    def take_texts(self, key: str, example: str) -> list[str]:
        """Take a list of texts from a key; an empty list if the key is missing. Raises ConfigError,
        with the `example` of a list, for another value."""
        texts = self.take(key, [])
        if not is_list_of_texts(texts):
            self.fail(key, f"{key} is a list: {example}.")
        return list(texts)

    def check_bool(self, key: str) -> bool | None:
        """The value of a key that is true or false; None if it is missing. The key stays in the
        table. Raises ConfigError for another value."""
        value = self.keys.get(key)
        if not isinstance(value, bool | None):
            self.fail(key, f"{key} is true or false.")
        return value

    def text_of(self, key: str, value: Any) -> str:
        """The value of a key as a text, in which `${NAME}` is replaced by the environment variable
        NAME. Raises ConfigError for a list or a table, and for a variable that is not set."""
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float):
            kind = "a list" if isinstance(value, list) else "a table or a time"
            hint = f": write {key} = {json.dumps(value[0])}" if is_list_of_one_text(value) else ""
            self.fail(key, f"{key} must be one text or number, not {kind}{hint}.")

        def variable(match: re.Match[str]) -> str:
            """The value of the environment variable in a match of `${NAME}`."""
            if match[1] not in self.environment:
                self.fail(key, f"the environment has no variable {match[1]}.")
            return self.environment[match[1]]

        return _VARIABLE.sub(variable, str(value))

    def check_keys(self, types: Mapping[str, type]) -> None:
        """Raise ConfigError for a key that `types` does not have, or with a value of another type
        than it has there."""
        for key, value in self.keys.items():
            if key not in types:
                self.fail(key, f"unknown key {key!r}{did_you_mean_or_list(key, types)}")
            if not isinstance(value, types[key]):
                self.fail(key, f"{key} is {_TYPE_NAMES[types[key]]}.")

    def texts(self) -> dict[str, str]:
        """The texts of all keys that are left."""
        return {key: self.text_of(key, value) for key, value in self.keys.items()}

    def options(self, option_names: Sequence[str], other_keys: Sequence[str]) -> dict[str, str]:
        """The keys that are left, as texts of options of one of jetspark's formats, by the names
        that the options have in Spark (`partition_by` is `partitionBy`).

        `option_names`: all options of the format; `other_keys`: keys of the table that are no
        options, for the hint. Raises ConfigError for a key that is no option.
        """
        texts = {}
        for key, value in self.keys.items():
            prefix, dot, name = key.rpartition(".")
            # A key with a dot, as "storage.region", is checked where the options are parsed.
            if not dot and key not in option_names:
                hint = did_you_mean_or_list(key, dict.fromkeys((*other_keys, *option_names)))
                self.fail(key, f"unknown key {key!r}{hint}")
            if key == "keys" and is_list_of_texts(value):
                value = join_names(value)
            name = key if key.startswith(STORAGE) else f"{prefix}{dot}{spark_name(name)}"
            texts[name] = self.text_of(key, value)
        return texts

    def options_of_spark(self, other_keys: Sequence[str]) -> dict[str, str]:
        """The keys that are left, as texts of options of a format that is not jetspark's, which
        ignores unknown ones.

        Raises ConfigError for a key that looks like a misspelled one of `other_keys`, the keys of
        the table that are no options: the format would ignore it.
        """
        without_underscores = {name.replace("_", ""): name for name in other_keys}  # partitionBy
        for key in self.keys:
            near = without_underscores.get(key.casefold()) or nearest_name(
                key, other_keys, cutoff=_MIN_SIMILARITY
            )
            if near is not None:
                self.fail(key, f"unknown key {key!r}; did you mean {near!r}?")
        return self.texts()

    @contextmanager
    def blaming(self, key: str | None = None) -> Iterator[None]:
        """Turn an error of the block into a ConfigError with a line of the file: that of the option
        that the error names, if the table has it, or else that of `key`; None: of the table."""
        try:
            yield
        except JetsparkError as error:
            option = error.option if isinstance(error, ConfigError) else None
            self.fail(option if option in self.keys else key, str(error))

    def fail(self, key: str | None, sentence: str) -> NoReturn:
        """Raise ConfigError with this sentence, after the name of the file and the line of the key,
        or of the table if `key` is None."""
        key_path = (*self.key_path, key) if key else self.key_path
        raise ConfigError(self.key_lines.located(key_path, sentence))
