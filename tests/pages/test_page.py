"""What the tests of the pages would miss, if anything: the reading of a page itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pages.page import Block, is_as_shown, prints_what_it_promises, read_page
from tests.pages.prompt import statements


def block(text: str = "", language: str = "console", remark: str = "") -> Block:
    return Block("page.md", 1, language, text, remark)


def test_blocks_have_their_line_their_language_and_the_remark_before_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\n```python\n1\n```\n\n<!-- not run: no cluster -->\n```console\nls\n```\n"
    )
    first, second = read_page(page, "page.md")
    assert (first.line, first.language, first.text, first.reason) == (3, "python", "1\n", "")
    assert (second.line, second.language, second.reason) == (8, "console", "no cluster")


@pytest.mark.parametrize("text", ["```python\n1\n", "1. a list\n   ```python\n   1\n   ```\n"])
def test_a_fence_that_is_not_seen_as_a_block_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "page.md").write_text(text)
    with pytest.raises(AssertionError, match="fences"):
        read_page(tmp_path / "page.md", "page.md")


@pytest.mark.parametrize(
    "wrong",
    [
        block("a = 1\n", "toml"),
        block("ls\n", "sh"),
        block("ls\n", ""),
        block("ls\n", remark="in the background"),
        block("ls\n", remark="not run:"),
    ],
)
def test_a_block_that_cannot_be_run_must_say_so(wrong: Block) -> None:
    assert wrong.problem


def test_a_block_with_a_path_is_a_file() -> None:
    assert block("# a/b.toml\nx = 1\n", "toml").file == "a/b.toml"
    assert block("-- views/all.sql\nSELECT 1\n", "sql").file == "views/all.sql"
    assert block("# what follows is about b.toml\n", "toml").file is None


def test_console_blocks_are_split_into_commands_and_output() -> None:
    shown = block("$ one a \\\n    b\n1\n\n2\n$ two\n")
    assert shown.commands == [("one a \\\n    b", "1\n\n2"), ("two", None)]
    assert block("one\ntwo\n").commands == [("one\ntwo\n", None)]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a 1\nb\n", "a 1\nb\n", True),
        ("a 1\nb\n", "a 1\n", False),
        ("a 1\n", "a 1\nb\n", False),
        ("a …\n", "a 17\n", True),
        ("a …\n", "a 17\nb\n", False),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a.c\n", "abc\n", False),
    ],
)
def test_shown_output_is_compared_with_what_was_printed(
    shown: str, printed: str, same: bool
) -> None:
    assert is_as_shown(shown, printed) is same


@pytest.mark.parametrize(
    ("code", "printed", "same"),
    [
        ("print(1)  # 1", "1\n", True),
        ("print(1)  # 2", "1\n", False),
        ("print(1)  # 1", "", False),
        ("print(1)  # 1", "1\n2\n", False),
        ("for x in y:\n    print(x)  # 1 2", "1\n2\n", True),
        ("print(1)\nprint(2)  # 2", "1\n2\n", True),
        ("print(1)\nprint(2)  # 2\nprint(3)  # 3", "1\n3\n2\n", False),
        ("print(1)  # about …", "about 17\n", True),
        ("print(1)", "anything\n", True),
        ("call(print)\nprint(2)  # 2", "1\n2\n", True),
    ],
)
def test_promises_behind_print(code: str, printed: str, same: bool) -> None:
    assert prints_what_it_promises(code, printed) is same


@pytest.mark.parametrize(
    ("text", "count"),
    [("a = 1\nb = 2\n", 2), ("with a:\n    b\n\nc\n", 2), ("def f():\n    pass\n", 1)],
)
def test_a_prompt_takes_what_is_pasted(text: str, count: int) -> None:
    assert len(list(statements(text, allow_await=False))) == count


@pytest.mark.parametrize("text", ["with a:\n    b\nc\n", "f(\n", "await a\n"])
def test_code_that_a_prompt_would_not_accept_is_reported(text: str) -> None:
    with pytest.raises(SyntaxError):
        list(statements(text, allow_await=False))
