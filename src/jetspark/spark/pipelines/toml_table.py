"""Tables of a TOML file, whose mistakes are reported with the file's name and the line.

A key is taken out of its table when it is read, so what is left are options, or unknown keys.
`${NAME}` in a text stands for the environment variable NAME, so that secrets need not be in the
file.
"""

from __future__ import annotations

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
    """The lines of a file's tables and keys; empty for a pipeline without a file.

    They are read from the text, since Python's TOML parser keeps no positions.
    """

    file: str = ""
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, file: str, text: str) -> KeyLines:
        """Read the lines of tables and keys. A line of a long text may be mistaken for a key, which
        is harmless."""
        lines: dict[tuple[str, ...], int] = {}
        table: tuple[str, ...] = ()
        counts: Counter[tuple[str, ...]] = Counter()
        for number, line in enumerate(text.splitlines(), 1):
            key_path: tuple[str, ...] = ()
            if header := _HEADER.match(line):
                table = key_path = _split_key(header[1])
                if line.lstrip().startswith(
                    "[["
                ):  # the path of a table in a list ends with its number
                    counts[table] += 1
                    table = key_path = (*table, str(counts[table] - 1))
            elif key := _KEY.match(line):
                key_path = (*table, *_split_key(key[1]))
            for length in range(1, len(key_path) + 1):  # [a.b] begins a, too
                lines.setdefault(key_path[:length], number)
        return cls(file, lines)

    def line(self, key_path: tuple[str, ...]) -> int | None:
        """The line of the key, else of the nearest table that contains it."""
        for length in range(len(key_path), 0, -1):
            if (line := self.lines.get(key_path[:length])) is not None:
                return line
        return None

    def located(self, key_path: tuple[str, ...], sentence: str) -> str:
        """The sentence after the file's name and the line."""
        if not self.file:
            return sentence
        line = self.line(key_path)
        return f"{self.file}{'' if line is None else f':{line}'}: {sentence}"


def _split_key(dotted: str) -> tuple[str, ...]:
    """Split a key at its dots; each part is bare or quoted."""
    return tuple(part.strip("\"'") for part in _KEY_PART.findall(dotted))


def is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


@dataclass(frozen=True)
class TomlTable:
    """A table of a file: the keys that nobody has taken, and where it is."""

    key_lines: KeyLines
    environment: Mapping[str, str] = field(repr=False)
    keys: dict[str, Any]
    key_path: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, environment: Mapping[str, str]) -> TomlTable:
        """Read a file as its outermost table. Raises ConfigError."""
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
        """The last part of the table's own key."""
        return self.key_path[-1]

    def inner(self, key: str, keys: dict[str, Any]) -> TomlTable:
        """A table within this one, with these keys."""
        return replace(self, keys=dict(keys), key_path=(*self.key_path, key))

    def take_tables(self, key: str) -> dict[str, TomlTable]:
        """Take the tables of sources, views or sinks, by their names."""
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
        """Take a list of texts, as they are in the file; `example`: one for the error."""
        texts = self.take(key, [])
        if not is_list_of_texts(texts):
            self.fail(key, f"{key} is a list: {example}.")
        return list(texts)

    def check_bool(self, key: str) -> bool | None:
        """The value of a key that stays; None without it. Fails unless it is true or false."""
        value = self.keys.get(key)
        if not isinstance(value, bool | None):
            self.fail(key, f"{key} is true or false.")
        return value

    def text_of(self, key: str, value: Any) -> str:
        """The value of a key as text, with the variables of the environment."""
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float):
            self.fail(key, f"{key} is a text or a number.")

        def variable(match: re.Match[str]) -> str:
            if match[1] not in self.environment:
                self.fail(key, f"the environment has no variable {match[1]}.")
            return self.environment[match[1]]

        return _VARIABLE.sub(variable, str(value))

    def check_keys(self, types: Mapping[str, type]) -> None:
        """Fail for other keys than these, and for values of another type."""
        for key, value in self.keys.items():
            if key not in types:
                self.fail(key, f"unknown key {key!r}{did_you_mean_or_list(key, types)}")
            if not isinstance(value, types[key]):
                self.fail(key, f"{key} is {_TYPE_NAMES[types[key]]}.")

    def texts(self) -> dict[str, str]:
        """The texts of all keys that are left."""
        return {key: self.text_of(key, value) for key, value in self.keys.items()}

    def options(self, option_names: Sequence[str], other_keys: Sequence[str]) -> dict[str, str]:
        """Texts of the options of a format of ours, by their names in Spark.

        `other_keys`: keys of the table that are no options. Fails for a key that is neither.
        """
        texts = {}
        for key, value in self.keys.items():
            prefix, dot, name = key.rpartition(".")
            if not dot and key not in option_names:
                hint = did_you_mean_or_list(key, dict.fromkeys((*other_keys, *option_names)))
                self.fail(key, f"unknown key {key!r}{hint}")
            if key == "keys" and is_list_of_texts(value):
                value = join_names(value)
            name = key if key.startswith(STORAGE) else f"{prefix}{dot}{spark_name(name)}"
            texts[name] = self.text_of(key, value)
        return texts

    def options_of_spark(self, other_keys: Sequence[str]) -> dict[str, str]:
        """Texts of the options of another format, which ignores unknown ones.

        Fails for a key that is nearly one of `other_keys`, those of the table that are no options.
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
        """Errors of the block get the line of the option that they name, or else of this key."""
        try:
            yield
        except JetsparkError as error:
            option = error.option if isinstance(error, ConfigError) else None
            self.fail(option if option in self.keys else key, str(error))

    def fail(self, key: str | None, sentence: str) -> NoReturn:
        """Raise ConfigError with the key's line; None: that of the table."""
        key_path = (*self.key_path, key) if key else self.key_path
        raise ConfigError(self.key_lines.located(key_path, sentence))
