"""Every command and every snippet of the pages runs, in the order in which a reader meets them.

One reader goes through all pages in the order of the site's navigation, with one `jetspark server`
and one folder; see reader.py. page.py says how a page tells what is to be done with a block.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pages.page import Block, read_page
from tests.pages.reader import Reader

from jetspark.server import server_version
from jetspark.spark.versions import HAS_LIMITS
from jetspark.subjects import subjects_overlap

ROOT = Path(__file__).parents[2]
# Pages with code that is not for users, and why it does not run here.
ELSEWHERE = {
    "CONTRIBUTING.md": "the checks themselves; .ci/run calls them",
    "docs/benchmarks.md": "measured by hand; a run takes an hour",
    "docs/architecture.md": "drawings",
    "docs/faults.md": "the campaigns, which take hours; tests/test_campaigns.py runs one",
}
MADE = {"docs/commands.md"}  # by scripts/docs_site.py
_STARTS_SPARK = re.compile(r"SparkSession|jetspark (?:ingest|run|replay)\b|spark\.read")


def in_the_order_of_the_site() -> list[str]:
    """README, the pages of the navigation, and those that README names besides."""
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    pages = [f"docs/{name}" for name in re.findall(r"- ([\w-]+\.md)", navigation)]
    readme = (ROOT / "README.md").read_text("utf-8")
    others = re.findall(r"\]\(((?:docs/|examples/)?[\w-]+\.md)", readme)
    return [n for n in dict.fromkeys(["README.md", *pages, *others]) if n not in MADE]


PAGES = {name: read_page(ROOT / name, name) for name in in_the_order_of_the_site()}
RUN = {
    name: [block for block in blocks if not block.reason]
    for name, blocks in PAGES.items()
    if name not in ELSEWHERE and any(not block.reason for block in blocks)
}
SPARK = {
    name
    for name, blocks in RUN.items()
    if any(_STARTS_SPARK.search(block.text) for block in blocks)
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    if tuple(map(int, server_version().split(".")[:2])) < (2, 14):
        pytest.skip("the pages show what a new nats-server can do")
    with Reader(tmp_path_factory.mktemp("pages")) as reader:
        yield reader


# What each page has left on the server and in the folder.
_LEFT: dict[str, set[str]] = {}


@pytest.mark.server
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.spark] if name in SPARK else []) for name in RUN]
)
def test_a_page_does_what_it_says(name: str, reader: Reader) -> None:
    before = reader.names()
    named = names_on(RUN[name])
    for page, left in _LEFT.items():
        assert page == name or not left & named, f"{name} uses names of {page}: {left & named}"
    if name == "docs/howto-lag.md" and not HAS_LIMITS:
        pytest.skip("this Spark does not know the lag: docs/howto-spark-versions.md")
    try:
        reader.read(RUN[name], spark=name in SPARK)
    finally:
        _LEFT[name] = reader.names() - before


def names_on(blocks: list[Block]) -> set[str]:
    """What may be a name of a stream, bucket or file: words of commands and texts in quotes."""
    found: set[str] = set()
    for block in blocks:
        if "jetspark acl" in block.text or "import Roles" in block.text:
            continue  # it only says what may be done
        if block.language == "console":
            found |= set(re.split(r"[\s'\"=]+", block.text))
        found |= set(re.findall(r"[\"']([\w./-]+)[\"']", block.text))
    return found


def test_no_stream_of_a_page_takes_in_what_is_sent_on_another_one_whatever_the_order() -> None:
    streams, requests = set(), set()
    for name, blocks in RUN.items():
        text = "\n".join(block.text for block in blocks)
        for made, subjects in re.findall(r'create_stream\(name="(\w+)", subjects=\[(.*?)\]', text):
            streams |= {(made, name, one) for one in re.findall(r'"([^"]+)"', subjects)}
        for asked in re.findall(r'\.request\w*\("([^"]+)"', text):
            requests.add((f"the request on {asked}", name, asked))
    assert len(streams) > 10
    assert len(requests) > 5
    taken = {
        f"{made} ({page}) takes in {what} ({other})"
        for made, page, subject in streams
        for what, other, sent in streams | requests
        if made != what and subjects_overlap(subject, sent)
    }
    assert taken == set()


def test_every_page_with_code_is_known() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")]
    with_code = {
        str(page.relative_to(ROOT))
        for page in pages
        if re.search("^ *```", page.read_text("utf-8"), re.MULTILINE)
    }
    assert with_code <= PAGES.keys() | ELSEWHERE.keys()


def test_every_block_is_run_or_says_why_not() -> None:
    for name, blocks in PAGES.items():
        if name not in ELSEWHERE:
            assert [f"{block}: {block.problem}" for block in blocks if block.problem] == []


def test_a_test_that_a_reason_names_is_there() -> None:
    for blocks in PAGES.values():
        for block in blocks:
            for file in re.findall(r"\b(?:tests|examples)/[\w/]+\.py", block.reason):
                assert (ROOT / file).is_file(), f"{block}: {file}"


def test_the_pages_install_extras_that_there_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for name in PAGES:
        text = (ROOT / name).read_text("utf-8")
        for extras in re.findall(r"(?:\.|jetspark|/src)\[([\w,]+)\]", text):
            assert set(extras.split(",")) <= project["optional-dependencies"].keys(), name
        assert name == "CHANGELOG.md" or "'jetspark[" not in text, f"{name}: nothing is published"
