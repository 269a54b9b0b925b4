"""Each file of examples/ runs as a process of its own and prints what its docstring shows.

The process is forked from one that has imported the client, which takes longer than an example.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import MakeServer
from tests.support.certificates import Certificates
from tests.support.forked import forked_from, run_program
from tests.support.leaf import HubAndLeaf
from tests.support.raw_client import RawClient

from jetspark.server import NatsServer

FOLDER = Path(__file__).parents[2] / "examples"
FILES = sorted(FOLDER.glob("*.py"))
ELSEWHERE = {"tls", "jetstream_domains", "key_value_aggregate"}  # they need servers of another kind
NEEDS = {
    "jetstream_sources": "2.10",
    "jetstream_get": "2.11",
    "jetstream_batch": "2.12",
    "jetstream_counter": "2.12",
    "jetstream_schedule": "2.12",
    "jetstream_fast_ingest": "2.14",
}
PACKAGES = {"service_fastapi": ("fastapi", "httpx")}  # those that the client has no use for
IN_THE_LOG = {"errors"}  # shows what goes wrong, which the log tells too

_WITHIN = 30.0  # seconds


@pytest.fixture(scope="module")
def examples_server() -> Iterator[NatsServer]:
    """One server for all of them, with no streams but theirs."""
    with NatsServer(name="examples") as server:
        yield server


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    """Runs an example and compares what it prints with the lines below its command."""

    def run(name: str, *arguments: str) -> None:
        file = FOLDER / f"{name}.py"
        process = forked_from("jetspark.full_client", "jetspark.blocking").Process(
            target=run_program, args=(file, arguments, tmp_path)
        )
        process.start()
        process.join(_WITHIN)
        process.kill()
        out, err = ((tmp_path / stream).read_text("utf-8") for stream in ("out", "err"))
        assert process.exitcode == 0, err
        assert not err or name in IN_THE_LOG, err
        shown, found = lines_of(file), out.splitlines()
        assert len(found) == len(shown), out
        for wanted, line in zip(shown, found, strict=True):
            pattern = ".*".join(map(re.escape, wanted.split("…")))
            assert re.fullmatch(pattern, line), f"{line!r} is not {wanted!r}"

    return run


def lines_of(file: Path) -> list[str]:
    """What the docstring of an example says that it prints; … stands for anything."""
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    block = re.search(rf"^\$ python examples/{file.name}.*\n((?:.+\n?)+)", text, re.MULTILINE)
    assert block, f"{file.name} does not show what it prints"
    return block[1].splitlines()


@pytest.mark.parametrize("name", [file.stem for file in FILES if file.stem not in ELSEWHERE])
def test_an_example_prints_what_it_shows_and_leaves_nothing(
    name: str,
    run: Callable[..., None],
    examples_server: NatsServer,
    needs_server: Callable[[str], None],
) -> None:
    needs_server(NEEDS.get(name, "2.9"))
    for package in PACKAGES.get(name, ()):
        pytest.importorskip(package, reason="an environment older than the extra dev")
    run(name, examples_server.url)
    with RawClient(examples_server.url) as raw:
        assert not raw.api("STREAM.NAMES")["streams"]


def test_example_of_tls_runs_with_and_without_client_certificates(
    run: Callable[..., None], make_server: MakeServer, certificates: Certificates
) -> None:
    server = make_server(certificates.server_config())
    run("tls", server.url, str(certificates.ca))
    server = make_server(certificates.server_config(verify=True))
    run(
        "tls",
        server.url,
        *map(str, (certificates.ca, certificates.client_cert, certificates.client_key)),
    )


@pytest.mark.parametrize("name", ["jetstream_domains", "key_value_aggregate"])
def test_example_of_domains_runs_over_a_leaf_node(
    name: str,
    run: Callable[..., None],
    hub_and_leaf: HubAndLeaf,
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.10" if name == "key_value_aggregate" else "2.9")
    run(name, hub_and_leaf.leaf.url)


def test_every_example_is_named_in_the_readme_of_the_folder() -> None:
    text = (FOLDER / "README.md").read_text("utf-8")
    assert set(re.findall(r"\]\((\w+\.py)\)", text)) == {file.name for file in FILES}
