"""`jetspark doctor`: looks at this machine, its Spark and the servers, and says what to do."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from packaging.requirements import Requirement
from rich.text import Text

from jetspark.acl import USER_INFO, Permissions
from jetspark.cli import console
from jetspark.cli.acl import permissions_of
from jetspark.cli.app import kernel_advice, make_app
from jetspark.cli.options import DEFAULT, Connection, JsonOption, Repeated, Switch
from jetspark.cli.spark_runs import LOCAL, SparkFlags, quiet_spark
from jetspark.errors import ConfigError, JetsparkError, PermissionsError, SparkUnavailableError
from jetspark.subjects import subject_within, subjects_overlap
from jetspark.timestamps import parse_isotime
from jetspark.version import __version__
from jetspark.wire.documents import decode_json
from jetspark.wire.kernel import IMPLEMENTATION

if TYPE_CHECKING:
    import pyarrow as pa

    from jetspark.full_client import Client

TESTED: Final = {
    "Python": ((3, 11), (3, 13)),
    "Java": ((17,), (17,)),
    "PySpark": ((4, 0), (4, 3)),
    "nats-server": ((2, 9), (2, 15)),
}
"""The oldest and the newest version that the tests are run with."""
_OK, _WARNING, _PROBLEM = "ok", "warning", "problem"
_COLOURS = {_OK: "green", _WARNING: "yellow", _PROBLEM: "bold red"}
_LITTLE, _TOO_LITTLE = 2 << 30, 256 << 20  # bytes free on a disk
_CLOCK_SECONDS = 1.0
_WORKER_SECONDS = 60.0
_SHOWN = 3
_FOR_DEVELOPERS = ("bench", "dev", "release")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. `advice`: what to do, where `found` does not say it."""

    check: str
    state: str
    found: str
    advice: str = ""


def doctor(
    *,
    connection: Connection = DEFAULT,
    role: Repeated = None,
    folder: Repeated = None,
    spark: Switch = False,
    flags: SparkFlags = LOCAL,
    json: JsonOption = False,
) -> int:
    """Look at this machine, its Spark and the servers: a line each, with what to do.

    The exit code is 1 when there is a problem. Nothing is changed, and nothing is published but
    questions to the server.

    Args:
        role: Whether the user may do the work of a role, as `jetspark acl` takes it: pull-reader=S,
            or with options, as "spark-sink=S --subject s.>"; may be given again.
        folder: Folder of a table or a checkpoint, for its disk; may be given again.
        spark: Also start Spark, with --master and --conf, and look at its workers.
        json: Print JSON.
    """
    if not spark and (flags.master != LOCAL.master or flags.conf):
        raise ConfigError("--master and --conf are for --spark: give that, too.")
    settings = flags.settings()
    connection.options()
    roles = {text: _permissions(text) for text in role or ()}
    found = [*_python(), *_spark(), *_disks([tempfile.gettempdir(), *(folder or ())])]
    if _version("pyspark"):
        found.append(_workers(flags, settings) if spark else _workers_here())

    async def ask(nc: Client) -> list[Finding]:
        return [await _server(nc), await _jetstream(nc), *await _user(nc, roles)]

    try:
        found += connection.run(ask)
    except JetsparkError as error:
        found.append(Finding("server", _PROBLEM, str(error)))
    console.show_refusals(except_in="\n".join(one.found for one in found))
    if json:
        console.say_json([asdict(one) for one in found], indent=True)
    else:
        width = max(len(one.check) for one in found)
        console.say(*(_line(one, width) for one in found if one.state != _OK or not flags.quiet))
    return 1 if any(one.state == _PROBLEM for one in found) else 0


def _line(one: Finding, width: int) -> Text:
    text = console.harmless(" ".join(f"{one.found} {one.advice}".split()))
    state = (f"{one.state:7}  ", _COLOURS[one.state])
    return Text.assemble(state, f"{one.check:{width}}  {text}")


def _permissions(text: str) -> Permissions:
    """What `jetspark acl` makes of the text. Raises ConfigError and cyclopts's errors."""
    words = ["acl", *shlex.split(text)]
    _, given, _ = make_app().parse_args(words, print_error=False, exit_on_error=False)
    given.apply_defaults()
    return permissions_of(given.arguments)


def _version(package: str) -> str:
    """That of an installed package; empty for another one."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


# -- this machine ----------------------------------------------------------------------------------


def _tested(what: str, version: str, more: str = "", check: str = "") -> Finding:
    """Whether the tests are run with this version."""
    oldest, newest = TESTED[what]
    numbers = tuple(map(int, re.findall(r"\d+", version)))[: len(oldest)]
    found = f"{what} {version}{more}"
    if oldest <= numbers <= newest:
        return Finding(check or what, _OK, found)
    known = " to ".join(dict.fromkeys(".".join(map(str, one)) for one in (oldest, newest)))
    state = _WARNING if numbers > newest else _PROBLEM
    return Finding(check or what, state, f"{found}.", f"It is tested with {known}.")


def _python() -> Iterator[Finding]:
    yield _tested("Python", platform.python_version(), f" ({sys.executable})")
    state = _WARNING if (advice := kernel_advice()) else _OK
    yield Finding(
        "kernel", state, {"c": "in C", "python": "in plain Python"}[IMPLEMENTATION], advice
    )
    right = set()
    for wanted in map(Requirement, metadata.requires("jetspark") or ()):
        extra = re.search(r"extra == .(\w+)", str(wanted.marker or ""))
        there = _version(wanted.name)
        if not there or wanted.name == "jetspark" or (extra and extra[1] in _FOR_DEVELOPERS):
            continue
        if wanted.specifier.contains(there, prereleases=True):
            right.add(wanted.name)
            continue
        package = f"jetspark[{extra[1]}]" if extra else "jetspark"
        said = f"{wanted.name} {there}; {package} needs {wanted.specifier}."
        yield Finding("libraries", _PROBLEM, said, f"pip install '{package}'.")
    yield Finding("libraries", _OK, f"{len(right)} in versions that jetspark {__version__} takes")


def _spark() -> Iterator[Finding]:
    if not (version := _version("pyspark")):
        advice = "For Spark: pip install 'jetspark[spark]'."
        yield Finding("PySpark", _WARNING, "It is not installed.", advice)
        return
    yield _tested("PySpark", version)
    from jetspark.spark.java import find_java, java_version

    try:
        java = find_java()
        yield _tested("Java", str(java_version(java)), f" ({java})")
    except SparkUnavailableError as error:
        yield Finding("Java", _PROBLEM, str(error))


def _disks(folders: Sequence[str]) -> Iterator[Finding]:
    for folder in folders:
        place = Path(folder).expanduser().absolute()
        there = next(one for one in (place, *place.parents) if one.exists())
        free = shutil.disk_usage(there).free
        found = f"{console.size(free)} free for {folder}"
        if not os.access(there, os.W_OK):
            yield Finding("disk", _PROBLEM, f"{there} cannot be written by this user.")
        elif free < _LITTLE:
            state = _PROBLEM if free < _TOO_LITTLE else _WARNING
            yield Finding("disk", state, f"{found}.", "Make room, or use another disk.")
        else:
            yield Finding("disk", _OK, found)


# -- the Python of Spark's workers -----------------------------------------------------------------

_ABOUT = """
import json, sys
from importlib.metadata import version
from jetspark.version import __version__
from jetspark.wire.kernel import IMPLEMENTATION

about = json.dumps({"kernel": IMPLEMENTATION, "jetspark": __version__, "PySpark":
    version("pyspark"), "Python": "{}.{}".format(*sys.version_info)})
"""


def _workers_here() -> Finding:
    """What a session on this machine would start."""
    python = os.environ.get("PYSPARK_PYTHON") or sys.executable
    program = [python, "-c", f"import pandas, pyarrow\n{_ABOUT}print(about)"]
    try:
        ran = subprocess.run(program, capture_output=True, text=True, timeout=_WORKER_SECONDS)  # noqa: S603
        why = "" if ran.returncode == 0 else ran.stderr.strip().rpartition("\n")[2]
    except (OSError, subprocess.SubprocessError) as error:
        why = str(error)
    if why:
        advice = "Set PYSPARK_PYTHON to a Python with jetspark[spark]."
        return Finding("workers", _PROBLEM, f"{python}: {why}.", advice)
    return _compared(python, [ran.stdout])


def _workers(flags: SparkFlags, settings: Mapping[str, str]) -> Finding:
    """What a session with these flags starts."""
    source = _ABOUT

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        names: dict[str, Any] = {}
        exec(source, names)  # noqa: S102
        for batch in batches:
            yield pyarrow.RecordBatch.from_pydict({"about": [names["about"]] * len(batch)})

    try:
        with quiet_spark("jetspark doctor", flags, settings, messages=0, look_only=True) as session:
            tasks = 4 * session.sparkContext.defaultParallelism
            rows = session.range(0, tasks, 1, tasks).mapInArrow(look, "about string").distinct()
            return _compared(flags.master, [row.about for row in rows.collect()])
    except JetsparkError as error:
        return Finding("workers", _PROBLEM, str(error))


def _compared(where: str, told: Sequence[str]) -> Finding:
    """The versions of workers and of this program. `told`: what `_ABOUT` makes."""
    names: dict[str, Any] = {}
    exec(_ABOUT, names)  # noqa: S102
    others = [one for one in told if one.strip() != names["about"]]
    if not others:
        return Finding("workers", _OK, f"{where}: the same versions as here")
    found = f"{where}: {', '.join(others[:_SHOWN])}; here {names['about']}."
    return Finding("workers", _PROBLEM, found, "Give the workers the same versions.")


# -- the servers -----------------------------------------------------------------------------------


async def _server(nc: Client) -> Finding:
    version = "" if nc.server_info is None else nc.server_info.version
    away = f" at {nc.current_server}, {await nc.rtt() * 1000:.1f} ms away"
    return _tested("nats-server", version, away, "server")


async def _jetstream(nc: Client) -> Finding:
    try:
        account = await nc.jetstream().account_info()
    except PermissionsError as error:  # few roles may ask
        enabled = nc.server_info is not None and nc.server_info.jetstream
        state = _OK if enabled else _WARNING
        return Finding("JetStream", state, f"{'on' if enabled else 'off'} on the server; {error}")
    except JetsparkError as error:
        advice = "Write `jetstream {}` into the server's configuration, and the account's."
        return Finding("JetStream", _PROBLEM, str(error), advice)
    streams = console.counted(account.streams, "stream")
    most = console.limit(account.limits.max_storage if account.limits else None, console.size)
    found = f"{streams}, {console.size(account.storage)} in files of at most {most}"
    return Finding("JetStream", _OK, found)


class _Side(msgspec.Struct):
    allow: list[str] | None = None
    deny: list[str] | None = None

    def allows(self, needed: str) -> bool:
        """A subscription that is allowed for a queue group is written "subject group"."""
        subject, _, group = needed.partition(" ")
        allow, deny = (
            [of for of, _, only in (text.partition(" ") for text in side) if only in ("", group)]
            for side in (self.allow or [">"], self.deny or [])
        )
        within = any(subject_within(subject, one) for one in allow)
        return within and not any(subjects_overlap(subject, one) for one in deny)


class _Granted(msgspec.Struct):
    publish: _Side = msgspec.field(default_factory=_Side)
    subscribe: _Side = msgspec.field(default_factory=_Side)
    responses: dict[str, Any] | None = None

    def lacks(self, needed: Permissions) -> list[str]:
        """What is needed and not allowed."""
        lacking = [f"publish to {one}" for one in needed.publish if not self.publish.allows(one)]
        received = [one for one in needed.subscribe if not self.subscribe.allows(one)]
        lacking += [f"subscribe to {one}" for one in received]
        if needed.responses and self.publish.allow and not self.responses:
            lacking.append("answer (allow_responses)")
        return lacking


class _User(msgspec.Struct):
    account: str
    user: str = ""
    permissions: _Granted = msgspec.field(default_factory=_Granted)


class _UserInfo(msgspec.Struct):
    server: dict[str, Any]
    data: _User


async def _user(nc: Client, roles: Mapping[str, Permissions]) -> list[Finding]:
    """User, clock and roles: all that the server tells about this user."""
    before = time.time_ns()
    try:
        answer = await nc.request(USER_INFO)
        after = time.time_ns()
        info = decode_json(answer.data, _UserInfo, "answer about the user")
        server = parse_isotime(str(info.server.get("time")))
    except (JetsparkError, ValueError) as error:
        found = f"Permissions and clocks are not compared: {error}"
        advice = "From server 2.10 on, `jetspark acl doctor` prints what allows it."
        return [Finding("user", _WARNING, found, advice)]
    found = f"{info.data.user or 'anybody'}, of account {info.data.account}"
    findings = [Finding("user", _OK, found), _clock((before + after) / 2 - server, after - before)]
    for text, needed in roles.items():
        if lacking := info.data.permissions.lacks(needed):
            more = f", and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
            found = f"{text}: the user may not {', '.join(lacking[:_SHOWN])}{more}."
            advice = f"`jetspark acl {text}` prints what the role needs."
            findings.append(Finding("role", _PROBLEM, found, advice))
        else:
            findings.append(Finding("role", _OK, f"{text}: the user may do all of it"))
    return findings


def _clock(ahead: float, trip: float) -> Finding:
    """Nanoseconds by which this machine's clock is ahead of the server's, and of the question."""
    seconds, way = abs(ahead) / 1e9, "ahead of" if ahead > 0 else "behind"
    found = f"{seconds:.4f} s {way} the server's (± {trip / 2e9:.4f} s)"
    if seconds - trip / 2e9 < _CLOCK_SECONDS:
        return Finding("clock", _OK, found)
    advice = "Synchronize both by NTP: starts by time, lags and the end of logins depend on them."
    return Finding("clock", _WARNING, f"{found}.", advice)
