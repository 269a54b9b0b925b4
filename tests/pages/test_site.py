"""The site: it builds without a warning, and its reference lacks nothing."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from jetspark import errors, public_names
from jetspark.cli.app import COMMANDS, make_app
from jetspark.options.names import spark_name
from jetspark.options.scopes import (
    CONNECTION,
    PayloadScope,
    SourceScope,
    StreamSinkScope,
    parsers_of,
)
from jetspark.spark.table_sink import option_texts as table_options

ROOT = Path(__file__).parents[2]
SITE_SECONDS = 300.0

pytestmark = pytest.mark.server  # for the time it takes: it is no part of the quick tests


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mkdocs reports links and anchors that lead nowhere, and pages outside the navigation.

    The theme, its search and colours of code say nothing of that: they would take half the time.
    """
    folder = tmp_path_factory.mktemp("site")
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    (folder / "theme").mkdir()
    (folder / "theme" / "main.html").write_text("{{ page.content }}")
    config["theme"] = {"name": None, "custom_dir": str(folder / "theme")}
    (reference,) = (one for one in config["plugins"] if one != "search")
    python = reference["mkdocstrings"]["handlers"]["python"]
    for part, names in ((python, "paths"), (python["options"], "extensions"), (config, "hooks")):
        part[names] = [str(ROOT / name) for name in part[names]]
    extensions = config["markdown_extensions"]
    extensions[extensions.index("pymdownx.highlight")] = {
        "pymdownx.highlight": {"use_pygments": False}
    }
    config |= {"plugins": [reference], "docs_dir": str(ROOT / "docs")}
    config["site_dir"] = str(folder / "site")
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(config), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=folder,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=SITE_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def page(site: Path, name: str) -> str:
    return (site / name / "index.html").read_text("utf-8")


def words(text: str) -> str:
    return " ".join(html.unescape(re.sub("<[^>]*>", "", text)).split())


def test_the_reference_has_every_name_that_is_public_or_shown(site: Path) -> None:
    pages = {file.parent.name: file.read_text("utf-8") for file in site.glob("api/*/index.html")}
    known = {name for text in pages.values() for name in re.findall(r'id="(jetspark[^"]+)"', text)}
    wanted = {f"jetspark.{name}" for name in vars(public_names) if name[0] != "_"}
    wanted |= {f"jetspark.errors.{name}" for name, one in vars(errors).items() if is_error(one)}
    for file in [*(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.py")]:
        text = file.read_text("utf-8")
        for module, names in re.findall(r"^ *from (jetspark[\w.]*) import ([\w, ]+)$", text, re.M):
            wanted |= {f"{module}.{name.split(' as ')[0].strip()}" for name in names.split(",")}
    assert wanted - known - set(pages) == set(), "name their modules in scripts/docs_site.py"


def test_the_reference_of_blocking_calls_says_what_help_says(site: Path) -> None:
    text = page(site, "api/jetspark.blocking")
    for call in ("rtt(timeout=None)", "delete_stream(name)"):
        assert call in words(text)
    assert "Seconds of one round trip to the server." in text
    assert "awaits(" not in text
    assert "Read[" not in text


def is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def test_the_reference_has_the_help_of_every_command(site: Path) -> None:
    text = words(page(site, "commands"))
    for name in COMMANDS:
        app = make_app(name)[name]
        for command in [name, *(f"{name} {one}" for one in app if not one.startswith("-"))]:
            assert f"jetspark {command}" in text, command


def test_every_option_of_a_format_is_in_the_reference(site: Path) -> None:
    text = re.findall(r"<code>([^<]+)</code>", page(site, "options"))
    known = {*CONNECTION, *table_options._WRITING, *table_options._READING}
    for scope in (SourceScope, PayloadScope, StreamSinkScope):
        known |= parsers_of(scope).keys()
    known = set(map(spark_name, known))
    assert known - set(text) == set()


def test_a_model_finds_each_page(site: Path) -> None:
    text = (site / "llms.txt").read_text("utf-8")
    for file in (ROOT / "docs").glob("*.md"):
        assert f"/{file.stem}/" in text or file.stem == "index"
