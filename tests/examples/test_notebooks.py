"""The notebooks run from top to bottom, and are kept without outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
FILES = sorted(FOLDER.glob("*.ipynb"))
_WITHIN = 300.0  # seconds; a busy machine starts Spark slowly

# Runs as a program, since a session of Spark belongs to its process.
_END = """
figure.savefig("figure.png")
import json
print(json.dumps({"rows": sum(batch.rows for _, batch in history), "published": published[-1][1],
                  "batches": len(history)}))
"""


def code_cells(file: Path) -> list[str]:
    document = json.loads(file.read_text("utf-8"))
    return ["".join(cell["source"]) for cell in document["cells"] if cell["cell_type"] == "code"]


@pytest.mark.spark
@pytest.mark.server
def test_throughput_and_lag_are_plotted(tmp_path: Path) -> None:
    cells = code_cells(FOLDER / "throughput_and_lag.ipynb")
    assert "SECONDS = 40" in cells[0]
    cells[0] = cells[0].replace("SECONDS = 40", "SECONDS = 4")
    program = tmp_path / "notebook.py"
    program.write_text("\n".join([*cells, _END]), "utf-8")
    done = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg", "MPLCONFIGDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=_WITHIN,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert 'jetspark_lag_sequences{query="events",stream="EVENTS"} ' in done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == found["published"] > 0
    assert found["batches"] > 1
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_a_missing_package_is_told_with_what_to_install(tmp_path: Path) -> None:
    (cell, *_) = code_cells(FOLDER / "throughput_and_lag.ipynb")
    program = tmp_path / "notebook.py"
    program.write_text(f"import sys\nsys.modules['matplotlib'] = None\n{cell}", "utf-8")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("is missing: pip install 'jetspark[notebook]'")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_outputs_are_kept(file: Path) -> None:
    document = json.loads(file.read_text("utf-8"))
    for cell in document["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
