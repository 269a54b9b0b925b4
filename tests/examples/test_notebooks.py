"""The notebooks run from top to bottom in Jupyter's kernel, and are kept without outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
FILES = sorted(FOLDER.glob("*.ipynb"))
_WITHIN = 300.0  # seconds; a busy machine starts Spark slowly

# What the notebook ends with, for the test.
_END = """
import json
print(json.dumps({"rows": sum(batch.rows for _, batch in history), "published": published[-1][1],
                  "batches": len(history), "axis": list(lower.get_xlim()), "last": times[-1]}))
"""


def code_cells(file: Path) -> list[str]:
    document = json.loads(file.read_text("utf-8"))
    return ["".join(cell["source"]) for cell in document["cells"] if cell["cell_type"] == "code"]


@pytest.mark.spark
@pytest.mark.server
def test_throughput_and_lag_are_plotted(tmp_path: Path) -> None:
    import nbformat  # here, since it takes a moment
    from nbclient import NotebookClient

    text = (FOLDER / "throughput_and_lag.ipynb").read_text("utf-8")
    assert "SECONDS = 40" in text
    document: Any = nbformat.reads(text.replace("SECONDS = 40", "SECONDS = 4"), as_version=4)
    document.cells[-1].source += _END
    environment = os.environ | {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    environment |= {"MPLCONFIGDIR": str(tmp_path), "IPYTHONDIR": str(tmp_path)}
    client = NotebookClient(document, timeout=_WITHIN, kernel_name="python3")
    client.execute(cwd=str(tmp_path), env=environment)
    outputs = [output for cell in document.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    printed = "".join(output.text for output in outputs if output.get("name") == "stdout")
    found = json.loads(printed.splitlines()[-1])
    assert found["rows"] == found["published"] > 0
    assert found["batches"] > 1
    assert found["axis"][0] == 0 < found["last"] <= found["axis"][1]


def test_a_missing_package_is_reported_with_its_extra(tmp_path: Path) -> None:
    (cell, *_) = code_cells(FOLDER / "throughput_and_lag.ipynb")
    program = tmp_path / "notebook.py"
    program.write_text(f"import sys\nsys.modules['matplotlib'] = None\n{cell}", "utf-8")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(
        "is missing: pip install '.[notebook]' in a clone of jetspark"
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_outputs_are_kept(file: Path) -> None:
    document = json.loads(file.read_text("utf-8"))
    for cell in document["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
