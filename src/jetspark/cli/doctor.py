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
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from jetspark.acl import USER_INFO, Permissions
from jetspark.cli import console
from jetspark.cli.acl import permissions_of
from jetspark.cli.app import make_app, no_server_advice, version_text
from jetspark.cli.flags import JsonOption, Repeated
from jetspark.cli.formatting import format_size
from jetspark.cli.log import print_refusals
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags
from jetspark.errors import JetsparkError, PermissionsError, SparkUnavailableError
from jetspark.subjects import subject_within, subjects_overlap
from jetspark.timestamps import parse_isotime
from jetspark.version import __version__
from jetspark.wire.documents import decode_json
from jetspark.wire.js_api import DEFAULT_PREFIX

if TYPE_CHECKING:
    from jetspark.full_client import Client

TESTED: Final = {
    "Python": ((3, 11), (3, 13)),
    "Java": ((17,), (17,)),
    "PySpark": ((4, 0), (4, 3)),
    "deltalake": ((1,), (1,)),
    "pyiceberg": ((0, 12), (0, 12)),
    "nats-server": ((2, 9), (2, 15)),
}
"""The oldest and the newest version that the tests are run with."""
_OK, _WARNING, _PROBLEM = "ok", "warning", "problem"
_MIN_FREE_BYTES = 1 << 30
_MAX_CLOCK_DIFFERENCE = 1.0  # seconds
_ANSWER_TIMEOUT = 2.0


class Finding(msgspec.Struct, frozen=True):
    """A line of the doctor's report: what was checked, its state, and what to do if it is not ok.

    `state`: "ok", "warning" or "problem".
    """

    check: str
    state: str
    message: str


def doctor(
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    role: Repeated = None,
    folder: Repeated = None,
    json: JsonOption = False,
) -> int:
    """Check this machine, its Spark and the servers: a line each, with what to do.

    The exit code is 1 when there is a problem. Spark is not started, and nothing is changed.

    Args:
        role: Whether the user may do the work of a role, as `jetspark acl` reads it: pull-reader=S,
            or with options, as "spark-sink=S --subject s.>"; may be given again.
        folder: Folder of a table or a checkpoint, for its disk; may be given again.
    """
    roles = {text: _parse_role(text) for text in role or ()}
    findings = [*_check_python_and_spark(), *_check_disks([tempfile.gettempdir(), *(folder or ())])]

    async def ask(nc: Client) -> list[Finding]:
        return await _check_server(nc) + await _check_user(nc, roles)

    try:
        findings += connection.run(ask)
    except JetsparkError as error:
        findings.append(Finding("server", _PROBLEM, f"{error}{no_server_advice(error)}"))
    print_refusals(except_in="\n".join(finding.message for finding in findings))
    if json:
        console.say_json(findings, indent=True)
    for finding in () if json else findings:
        console.say(f"{finding.state:8} {finding.check:11} {finding.message}")
    return 1 if any(finding.state == _PROBLEM for finding in findings) else 0


def _parse_role(text: str) -> Permissions:
    """The permissions of a role, which is written as the arguments of `jetspark acl`.

    Raises ConfigError and cyclopts's errors.
    """
    words = ["acl", *shlex.split(text)]
    _, bound, _ = make_app().parse_args(words, print_error=False, exit_on_error=False)
    bound.apply_defaults()
    return permissions_of(bound.arguments) or Permissions()


# -- this machine ----------------------------------------------------------------------------------


def _check_version(component: str, version: str, details: str = "") -> Finding:
    """Compare the version of a component, such as Java, with those that jetspark is tested with.

    An older one is a problem; a newer one is a warning, since it may work. `details`: text behind
    the version in the message.
    """
    oldest, newest = TESTED[component]
    # Only as many numbers are compared as `TESTED` has: 3.11.9 counts as 3.11.
    parsed_version = tuple(map(int, re.findall(r"\d+", version)))[: len(oldest)]
    if oldest <= parsed_version <= newest:
        return Finding(component, _OK, version + details)
    tested = " to ".join(dict.fromkeys(".".join(map(str, limit)) for limit in (oldest, newest)))
    state = _WARNING if parsed_version > newest else _PROBLEM
    return Finding(component, state, f"{version}{details}. It is tested with {tested}.")


_PRINT_VERSIONS = """
import pandas, pyarrow, pyspark_jetstream, sys
from importlib.metadata import version
from jetspark.version import __version__
print(*sys.version_info[:2], version("pyspark"), __version__)
"""
"""A program that prints the versions of a Python that can be one of Spark's workers."""


def _check_python_and_spark() -> Iterator[Finding]:
    """Check this Python, its packages and kernel, Java, and the Python of Spark's workers."""
    yield _check_version("Python", platform.python_version(), f" ({sys.executable})")
    # A second line is the advice to build the faster kernel.
    kernel, _, advice = version_text().partition("\n")
    yield Finding("kernel", _WARNING if advice else _OK, advice or kernel)
    installed = {package.name.casefold(): package.version for package in metadata.distributions()}
    present = [package for package in TESTED if package.casefold() in installed]
    yield from (_check_version(package, installed[package.casefold()]) for package in present)
    if "PySpark" not in present:
        yield Finding("PySpark", _WARNING, "Not there: pip install 'jetspark[spark]'.")
        return
    from jetspark.spark import java as spark_java

    try:
        java = spark_java.find_java()
        # Java prints its version in quotes.
        yield _check_version("Java", spark_java.read_version_text(java).split('"')[1], f" ({java})")
    except SparkUnavailableError as error:
        yield Finding("Java", _PROBLEM, str(error))
    yield _check_workers(installed["pyspark"])


def _check_workers(pyspark_version: str) -> Finding:
    """Check that the Python which Spark starts for its workers is like this one.

    That is PYSPARK_PYTHON, which needs the same versions of Python, PySpark and jetspark.
    """
    python = os.environ.get("PYSPARK_PYTHON") or sys.executable
    command = [python, "-c", _PRINT_VERSIONS]
    try:
        result = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
        # The last line: the versions, or the error of an import.
        output = (result.stdout or result.stderr).strip().rpartition("\n")[2]
    except OSError as error:
        output = str(error)
    expected = " ".join([*map(str, sys.version_info[:2]), pyspark_version, __version__])
    if output == expected:
        return Finding("workers", _OK, f"{python} has the versions of this one")
    problem = f"{python} says: {output}. This one: {expected}. Set PYSPARK_PYTHON to one like this."
    return Finding("workers", _PROBLEM, problem)


def _check_disks(folders: Sequence[str]) -> Iterator[Finding]:
    """Check that each folder can be written and has space; for a new one, its nearest parent."""
    for folder in folders:
        path = Path(folder).expanduser().absolute()
        existing = next(ancestor for ancestor in (path, *path.parents) if ancestor.exists())
        free = shutil.disk_usage(existing).free
        if not os.access(existing, os.W_OK):
            yield Finding("disk", _PROBLEM, f"{existing} cannot be written by this user.")
        else:
            state = _OK if free >= _MIN_FREE_BYTES else _WARNING
            yield Finding("disk", state, f"{format_size(free)} free for {folder}")


# -- the servers -----------------------------------------------------------------------------------


async def _check_server(nc: Client) -> list[Finding]:
    """Check the server's version, JetStream, and an API that is imported from another account."""
    version = "" if nc.server_info is None else nc.server_info.version
    away = f" at {nc.current_server}, {await nc.rtt() * 1000:.1f} ms away"
    findings = [_check_version("nats-server", version, away)]
    try:
        account = await nc.jetstream().account_info()
        stored = f"{account.streams:,} streams, {format_size(account.storage)} in files"
        findings.append(Finding("JetStream", _OK, stored))
        findings += await _check_imported_api(nc)
    except PermissionsError as error:
        findings.append(Finding("JetStream", _OK, f"few roles may ask: {error}"))
    except JetsparkError as error:
        advice = "Write `jetstream {}` into the server's configuration, and the account's."
        findings.append(Finding("JetStream", _PROBLEM, f"{error} {advice}"))
    return findings


async def _check_imported_api(nc: Client) -> list[Finding]:
    """Check that a JetStream API imported from another account passes on all answers to a request.

    Asks for one message of a stream, to which the server gives two answers: the message, and the
    end of the batch. No finding without an imported API or a stream to ask for.
    """
    js = nc.jetstream()
    if js.api_prefix == DEFAULT_PREFIX:  # the account's own API
        return []
    async for stream in js.streams():
        if stream.config.allow_direct and stream.state.messages:
            break
    else:
        return []
    subject = f"{js.api_prefix}.DIRECT.GET.{stream.name}"
    ask = nc.request_many(subject, b'{"seq": 1, "batch": 1}', timeout=_ANSWER_TIMEOUT, max_msgs=2)
    if len(await ask.all()) == 1:
        problem = (
            f"{js.api_prefix} gives one answer to a request, so consumers, watches and lists are "
            "incomplete or late: its export in the other account needs response_type: stream."
        )
        return [Finding("imports", _PROBLEM, problem)]
    return [Finding("imports", _OK, f"{js.api_prefix} gives all answers to a request")]


class _User(msgspec.Struct):
    """The connected user in the server's answer: name, account and permissions."""

    account: str
    user: str = ""
    permissions: dict[str, dict[str, Any]] = {}


class _UserInfo(msgspec.Struct):
    """The server's answer to a request about the user of the connection ($SYS.REQ.USER.INFO)."""

    server: dict[str, Any]
    data: _User


async def _check_user(nc: Client, roles: Mapping[str, Permissions]) -> list[Finding]:
    """Check the user's permissions for the roles, and this machine's clock, by asking the server.

    One answer about the user has both the permissions and the server's time. `roles`: the
    permissions that each role needs.
    """
    before = time.time_ns()
    try:
        answer = await nc.request(USER_INFO)
        after = time.time_ns()
        info = decode_json(answer.data, _UserInfo, "answer about the user")
        server = parse_isotime(str(info.server.get("time")))
    except (JetsparkError, ValueError) as error:
        advice = "From server 2.10 on, `jetspark acl doctor` prints what allows it."
        return [Finding("user", _WARNING, f"Permissions and clock are unknown. {error} {advice}")]
    # The server read its clock at some moment between the request and the answer.
    ahead, uncertainty = ((before + after) / 2 - server) / 1e9, (after - before) / 2e9
    clock = f"{ahead:+.4f} s from the server's (± {uncertainty:.4f} s)"
    findings = [
        Finding("user", _OK, f"{info.data.user or 'anybody'}, of account {info.data.account}")
    ]
    if abs(ahead) - uncertainty > _MAX_CLOCK_DIFFERENCE:
        findings.append(Finding("clock", _WARNING, f"{clock}: synchronize both."))
    else:
        findings.append(Finding("clock", _OK, clock))
    for text, needed in roles.items():
        if missing := _find_missing(needed, info.data.permissions):
            problem = f"{text}: the user may not {', '.join(missing[:3])} ({len(missing)} in all); "
            problem += f"`jetspark acl {text}` prints what the role needs."
            findings.append(Finding("role", _PROBLEM, problem))
        else:
            findings.append(Finding("role", _OK, f"{text}: all is allowed"))
    return findings


def _find_missing(needed: Permissions, granted: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """List the needed permissions that the user lacks, as "publish to SUBJECT".

    `granted`: the user's permissions as in the server's configuration, by "publish", "subscribe"
    and "responses".
    """
    missing = [
        f"{verb} to {subject}"
        for verb, subjects in (("publish", needed.publish), ("subscribe", needed.subscribe))
        for subject in subjects
        if not _allows(granted.get(verb, {}), subject)
    ]
    # Who may publish only to a list of subjects needs allow_responses to answer messages.
    if needed.responses and granted.get("publish", {}).get("allow") and "responses" not in granted:
        missing.append("answer (allow_responses)")
    return missing


def _allows(granted: Mapping[str, Any], needed: str) -> bool:
    """Whether permissions to publish, or to subscribe, include a subject.

    `granted`: the subjects under "allow", all by default, and those under "deny". A subscription
    of a queue group is written "subject group".
    """
    subject = needed.partition(" ")[0]
    allow, deny = granted.get("allow") or [">"], granted.get("deny") or []
    is_allowed = any(pattern == needed or subject_within(subject, pattern) for pattern in allow)
    return is_allowed and not any(subjects_overlap(subject, pattern) for pattern in deny)
