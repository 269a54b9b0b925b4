"""The JetStream API's error codes: the table, the classes for type checkers, and the page.

`python scripts/error_codes.py errors.json` writes `src/jetspark/err_codes.py`,
`src/jetspark/api_errors.pyi` and `docs/error-codes.md` from `server/errors.json` of nats-server
(https://github.com/nats-io/nats-server, Apache-2.0), of which it takes the numbers, the names and
the descriptions. Without an argument it writes them again from the table that the package has.
A test compares the files with what this writes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from jetspark import errors
from jetspark.err_codes import TABLE

ROOT = Path(__file__).parent.parent
ADDED = {
    10228: ("SourceConsumerFlowControlStalled", "stream source consumer stalled on flow control"),
}
"""Errors of server 2.15.1 that the file did not have yet when the table was made."""

MODULE = '''\
"""The `err_code` numbers in JetStream's error answers, each named as in nats-server. Values only.

Made by `python scripts/error_codes.py`, which says from what.
"""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# fmt: off
TABLE: Final[Mapping[int, tuple[str, str]]] = {{
{table}
}}
"""The name and the description of each number."""

{constants}
'''

STUB = '''\
"""The classes that `jetspark.errors` makes when they are first used, for type checkers.

Made by `python scripts/error_codes.py`.
"""

from jetspark.errors import (
{bases}
)

# fmt: off
{classes}
'''

PAGE = """\
# Error codes

Every error of the JetStream API has a number, `err_code`, and a name. `error.name` of an
`APIError` is the name, and each name has a class in `jetspark.errors`:

<!-- not run: needs a cluster that moves a stream -->
```python
try:
    await js.create_or_update_stream(name="ORDERS", placement={{"cluster": "east"}})
except errors.StreamMoveInProgressError as error:
    print(error.name, error.err_code)  # StreamMoveInProgress 10124
```

The last column has the class's base, where that is not `APIError`: `except errors.BatchError`
catches all errors of batches. The numbers have names in `jetspark.err_codes`, as
`STREAM_MOVE_IN_PROGRESS`. An error that a newer server adds is an `APIError` whose `name` is None.
Made by `python scripts/error_codes.py` from nats-server's `errors.json`.

| err_code | name | description | class, if not the name and `Error` | base |
|---|---|---|---|---|
{rows}
"""


def read_table(text: str) -> dict[int, tuple[str, str]]:
    """The names and descriptions of an `errors.json` by their numbers."""
    table = {
        entry["error_code"]: (
            re.sub(r"^JS|(Err(or)?)?F?$", "", entry["constant"]),
            entry["description"],
        )
        for entry in json.loads(text)
    }
    return dict(sorted((ADDED | table).items()))


def constant_of(name: str) -> str:
    """STREAM_WRONG_LAST_MSG_ID for StreamWrongLastMsgID."""
    return re.sub(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).upper()


def module_text(table: Mapping[int, tuple[str, str]]) -> str:
    """The whole of src/jetspark/err_codes.py."""
    return MODULE.format(
        table="\n".join(
            f"    {code}: ({json.dumps(name)}, {json.dumps(text)}),"
            for code, (name, text) in table.items()
        ),
        constants="\n".join(
            f"{constant_of(name)}: Final = {code}" for code, (name, _) in table.items()
        ),
    )


def stub_text() -> str:
    """The whole of src/jetspark/api_errors.pyi."""
    lines, bases = [], set()
    for code, (name, _) in TABLE.items():
        cls = errors.api_error_class(code)
        if cls.__name__ != f"{name}Error":
            lines.append(f"{name}Error = {cls.__name__}")
            bases.add(cls.__name__)
        elif cls.__name__ not in vars(errors):
            lines.append(f"class {name}Error({cls.__mro__[1].__name__}): ...")
            bases.add(cls.__mro__[1].__name__)
    names = "\n".join(f"    {name}," for name in sorted(bases))
    return STUB.format(bases=names, classes="\n".join(lines))


def page_text() -> str:
    """The whole of docs/error-codes.md."""
    rows = []
    for code, (name, text) in TABLE.items():
        cls = errors.api_error_class(code)
        other = f"`{cls.__name__}`" if cls.__name__ != f"{name}Error" else ""
        base = f"`{cls.__mro__[1].__name__}`" if cls.__mro__[1] is not errors.APIError else ""
        shown = re.sub(r"{(\w+)}", r"*\1*", text).replace("|", "\\|")
        rows.append(f"| {code} | {name} | {shown} | {other} | {base} |")
    return PAGE.format(rows="\n".join(rows))


def files() -> dict[Path, str]:
    """What each file has to contain."""
    return {
        ROOT / "src/jetspark/err_codes.py": module_text(TABLE),
        ROOT / "src/jetspark/api_errors.pyi": stub_text(),
        ROOT / "docs/error-codes.md": page_text(),
    }


if __name__ == "__main__":
    if sys.argv[1:]:
        table = read_table(Path(sys.argv[1]).read_text("utf-8"))
        (ROOT / "src/jetspark/err_codes.py").write_text(module_text(table), "utf-8")
        # The classes follow the table, which only a new process reads.
        subprocess.run([sys.executable, __file__], check=True)
    else:
        for file, text in files().items():
            file.write_text(text, "utf-8")
