"""A Python prompt, or that of `python -m asyncio`, that a program types into.

Reads JSON lines `{"code": …, "fresh": …}` and answers each with `{"printed": …, "failed": …}`. Code
is taken line by line, as a prompt takes what is pasted: an empty line ends a function or a `with`.
With a folder as second argument it also answers an empty line with the exit code of a command, see
commands.py.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import codeop
import io
import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


def statements(text: str, allow_await: bool) -> Iterator[CodeType]:
    compiler = codeop.CommandCompiler()
    if allow_await:
        compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    pasted: list[str] = []
    for line in [*text.splitlines(), ""]:
        pasted.append(line)
        code = compiler("\n".join(pasted), "page", "single")
        if code is not None:
            if any(line.strip() for line in pasted):
                yield code
            pasted.clear()
    if any(pasted):
        raise SyntaxError("the prompt waits for more:\n" + "\n".join(pasted))


class Prompt:
    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.printed = io.StringIO()

    def begin(self) -> None:
        # Libraries in C look for the names of Python in the frame of their caller.
        self.names = {"__name__": "__main__", "__builtins__": builtins}
        self.printed = io.StringIO()
        sys.stdout = self.printed

    def answer(self, failed: str | None) -> dict[str, str | None]:
        printed = self.printed.getvalue()
        self.printed.seek(0)
        self.printed.truncate()
        return {"printed": printed, "failed": failed}

    def type(self, text: str) -> dict[str, str | None]:
        try:
            for code in statements(text, allow_await=False):
                FunctionType(code, self.names)()
        except BaseException:
            return self.answer(traceback.format_exc())
        return self.answer(None)

    async def type_async(self, text: str) -> dict[str, str | None]:
        try:
            for code in statements(text, allow_await=True):
                waiting = FunctionType(code, self.names)()
                if asyncio.iscoroutine(waiting):
                    await waiting
        except BaseException:
            return self.answer(traceback.format_exc())
        return self.answer(None)


def run_command(folder: Path) -> int:
    if (root := str(Path(__file__).parents[2])) not in sys.path:
        sys.path.append(root)
    from tests.pages import commands  # here, for it imports Spark

    return commands.run(folder)


def main() -> None:
    asks, answers = os.fdopen(os.dup(0), "r"), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a JVM prints is no answer
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.displayhook = lambda value: None
    prompt = Prompt()

    def take() -> dict[str, Any] | None:
        while (line := asks.readline()) == "\n":
            answers.write(f"{run_command(Path(sys.argv[2]))}\n")
            answers.flush()
        asked: dict[str, Any] | None = json.loads(line) if line else None
        if asked and asked["fresh"]:
            prompt.begin()
        return asked

    def give(answer: dict[str, str | None]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    async def go_on() -> None:
        while asked := await asyncio.to_thread(take):
            give(await prompt.type_async(asked["code"]))

    if "asyncio" in sys.argv[1:]:
        asyncio.run(go_on())
    else:
        while asked := take():
            give(prompt.type(asked["code"]))


if __name__ == "__main__":
    main()
