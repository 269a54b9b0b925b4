"""The words of an error are those of its surface, and its advice can be followed there."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.support.streams import Admin

import jetspark
from jetspark.cli.app import EXTRAS, make_app
from jetspark.errors import ConfigError, switching
from jetspark.options.names import on_command_line, switch_on_command_line
from jetspark.spark.failures import explain
from jetspark.spark.pipelines.pipeline_file import read_pipeline
from jetspark.tables.table_templates import TableTemplate

ROOT = Path(jetspark.__file__).parent
NOWHERE = ["--server", "nats://127.0.0.1:1"]


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would not start: whoever tries says so."""
    monkeypatch.setenv("JAVA_HOME", "/no/java")


def test_a_switch_is_given_as_each_surface_has_it() -> None:
    error = ConfigError(f"{switching('sole_reader', True)}. {switching('tls', False)} then.")
    assert str(error) == "Set sole_reader to true. Set tls to false then."
    said = error.sentence(on_command_line, switch_on_command_line)
    assert said == "Give --sole-reader. Give --no-tls then."
    assert "or give --adopt to" in ConfigError(
        f"Restore it, or {switching('adopt', True)} to go on."
    ).sentence(on_command_line, switch_on_command_line)


@pytest.mark.parametrize(
    ("in_spark", "on_command"),
    [
        ("rows without 'defaultTable' end", "rows without --default-table end"),
        ("lost. Set 'failOnDataLoss' to false to", "lost. Give --no-fail-on-data-loss to"),
        ("Option 'keys' is wrong", "--keys is wrong"),
        ("Stream 'keys' has no 'aB'", "Stream 'keys' has no 'aB'"),
        ("there is no subject[9]: [X]", "there is no subject[9]: [X]"),
    ],
)
def test_an_error_of_a_task_names_flags_too(in_spark: str, on_command: str) -> None:
    text = f"[FAILED] x\njetspark.errors.ConfigError: {in_spark} SQLSTATE: 38000\n"
    error = explain(RuntimeError(text))
    assert error.sentence(on_command_line, switch_on_command_line) == on_command


# -- optional libraries --------------------------------------------------------------------------

_BLOCKED = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
from jetspark.cli.app import run
sys.exit(run(sys.argv[2:]))
"""


def test_each_library_that_is_imported_has_an_extra() -> None:
    imported = set()
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                imported.add(node.module.partition(".")[0])
    own = {"jetspark", "msgspec", "polars"}  # `library` says how to install Polars
    assert imported - sys.stdlib_module_names - own <= EXTRAS.keys()
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= project["optional-dependencies"].keys()


@pytest.mark.full
@pytest.mark.parametrize(
    ("library", "command", "extra"),
    [
        ("prometheus_client", "ingest S --to t --metrics :0", "metrics"),
        ("prometheus_client", "run p.toml --metrics :0", "metrics"),
        ("prometheus_client", "replay plain --to S --subject 'x' --metrics :0", "metrics"),
        ("prometheus_client", "dead-letters replay X --metrics :0", "metrics"),
        ("openlineage", "ingest S --to t --lineage", "lineage"),
        ("deltalake", "ingest S --to t", "delta"),
        ("deltalake", "table info delta --format delta", "delta"),
        ("deltalake", "replay delta --format delta --to S", "delta"),
        ("pyiceberg", "ingest S --to t --format iceberg", "iceberg"),
        ("pyiceberg", "replay cat:a.b --to S", "iceberg"),
        ("websockets", "stream ls --server ws://127.0.0.1:1", "ws"),
        ("google", "ingest S --to t --decode protobuf --schema-file o.proto", "protobuf"),
        ("jsonschema", "registry serve", "registry"),
        ("pyarrow", "sub s --decode avro --schema-file x", "spark"),
        ("pyspark", "ingest S --to t", "spark"),
    ],
)
def test_a_missing_library_is_one_sentence_before_spark_starts(
    library: str, command: str, extra: str, admin: Admin, tmp_path: Path
) -> None:
    name = admin.stream(1)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "rows.parquet").touch()
    (tmp_path / "o.proto").write_text('syntax = "proto3"; message O { string id = 1; }')
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    (tmp_path / "p.toml").write_text(
        f'checkpoint = "c"\n[sources.a]\nstream = "{name}"\nservers = "{admin.url}"\n'
        '[sinks.b]\nformat = "jetspark-delta"\npath = "t"\n'
    )
    arguments = [name if word == "S" else word for word in command.split()]
    if arguments[0] != "run" and "--server" not in arguments:
        arguments += ["--server", admin.url] if arguments[0] != "table" else []
    done = subprocess.run(
        [sys.executable, "-c", _BLOCKED, library, *arguments],
        capture_output=True, text=True, cwd=tmp_path, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert library in done.stderr
    assert f"pip install 'jetspark[{extra}]'." in done.stderr


# -- templates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "template",
    ["lake/{subject[9]}/../../x", "s3://b/{a}/%2E%2e/x", "{a}/..", "lake/{header[a/../b]}/x"],
)
def test_a_template_that_leads_out_of_its_values_is_refused(template: str) -> None:
    with pytest.raises(ConfigError, match=r"a \.\. leads out of the folder"):
        TableTemplate.parse("to", template)


def test_a_template_may_begin_above_and_have_dots_in_names() -> None:
    for template in ("../lake/{a}", "lake/{a}..b", "lake/..{a}", "lake/v1..2/{a}"):
        assert TableTemplate.parse("to", template) is not None


def test_no_surface_takes_a_template_that_leads_out(run: Run, tmp_path: Path) -> None:
    template = f"{tmp_path}/lake/{{subject[1]}}/../x"
    for more in ([], ["--infer"]):
        _, _, err = run("ingest", "S", "--to", template, *more, *NOWHERE, server="")
        assert err.startswith(f"--to: in {template} a .. leads out of"), err
    file = tmp_path / "p.toml"
    file.write_text(
        'checkpoint = "c"\n[sources.a]\nstream = "S"\n'
        f'[sinks.b]\nformat = "jetspark-delta"\npath = "{template}"\n'
    )
    with pytest.raises(ConfigError, match=rf"{file}:6: path: in .* a \.\. leads out of"):
        read_pipeline(file)


def test_infer_takes_fields_for_tables_by_their_columns(run: Run, admin: Admin) -> None:
    name = admin.stream(under=".>")
    admin.fill([(f"{name}.a", b'{"data": "eu", "n": 1}')])
    _, out, err = run("ingest", name, "--infer", "--to", "lake/{payload_data}")
    assert out == "# lake/eu\n'data STRING, n BIGINT'\n", err
    _, _, err = run("ingest", name, "--infer", "--to", "lake/{data}")
    assert err.startswith("--to: {data} names the payload, and with a schema its fields are the"), (
        err
    )


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--compact-every", "-1"], "--compact-every must be a whole number of at least 0, not"),
        (["--max-new-tables", "0"], "--max-new-tables must be a whole number of at least 1, not"),
    ],
)
def test_a_number_that_is_too_small_is_told_the_least_one(
    run: Run, flags: list[str], sentence: str
) -> None:
    _, _, err = run("ingest", "S", "--to", "t/{subject[0]}", *flags, *NOWHERE, server="")
    assert sentence in err


# -- what a mistake is told --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("ingest S --to t --follow --available-now", "--follow and --available-now exclude each"),
        ("ingest S --to t --fail-on-data-loss --no-fail-on-data-loss", "exclude each other: give"),
        ("ingest S --to t --available-now --available-now", "--available-now specified multiple"),
        ("ingest S --to t --max-trigger-delay 15x", "must be a time such as 15m or 90s"),
        ("table vacuum t --keep -1d", "--keep must be hours, days or weeks, such as 12h, 7d or 2w"),
        ("table compact t --target-size -1m", "--target-size must be a size of at least 64k"),
        ("stream verify file", "is not a backup of a stream: it is a file, and a backup is a"),
        ("backup info file", "is not a backup of a stream: it is a file, and a backup is a folder"),
        ("server --store file", "--store file is a file: name a folder."),
        ("replay plain --to S", "There is no table in plain, neither Delta nor Iceberg nor"),
        ("replay plain --to S --format delta", "There is no Delta table at plain."),
        ("ingest S --to t --decode avro", "their schema: give --schema, --schema-file, or --sch"),
        ("ingest S --to t --decode xml", "--decode must be avro, protobuf, json, cloudevents, "),
        (
            "ingest S --to t --partition-by bucket(-1,seq)",
            "its number must be 1 or more, a whole one",
        ),
        (
            "ingest S --to t --partition-by bucket(1.5,seq)",
            "its number must be 1 or more, a whole one",
        ),
        (
            'ingest S --to t --json-schema {"type":"object"',
            "a JSON Schema goes into --schema, with",
        ),
        (
            'ingest S --to t --decode json --schema {"type":',
            "The schema of the data cannot be used",
        ),
    ],
)
def test_a_mistake_is_told_with_what_to_do(
    command: str, sentence: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "plain").mkdir()
    arguments = command.split()
    needs_server = arguments[0] in ("ingest", "replay")
    code, _, err = run(*arguments, *(NOWHERE if needs_server else []), server="")
    assert code != 0
    assert sentence in err


def test_names_on_the_server_are_told_with_what_to_do(run: Run, admin: Admin) -> None:
    _, _, err = run("stream", "info", "zzzzzzzz")
    assert err.endswith("; `jetspark stream ls` shows the streams.\n")
    name = admin.stream(9)
    _, _, err = run("consumer", "info", name, "worker")
    assert err.endswith(f"; `jetspark consumer ls {name}` shows the consumers.\n")
    _, _, err = run("dead-letters", "create", name, "--stream", name)
    assert err.endswith(f"give the dead letters a name of their own, such as {name}_DEAD.\n")
    _, _, err = run("ingest", name, "--to", "no/table", "--start", "9", "--end", "3")
    assert "give --end a later position than --start, or leave it out" in err


@pytest.mark.parametrize(
    ("sink", "sentence"),
    [
        ('format = "delta"\npath = "t"', 'write format = "jetspark-delta", or name the JAR'),
        (
            'format = "jetspark-delta"\npath = "t"\nkeys = "a"\nsequence_by = ["seq"]',
            'sequence_by must be one text or number, not a list: write sequence_by = "seq".',
        ),
    ],
)
def test_a_pipeline_is_told_what_to_write(
    run: Run, tmp_path: Path, sink: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    file = tmp_path / "p.toml"
    file.write_text(f'checkpoint = "c"\n[sources.a]\nformat = "rate"\n[sinks.b]\n{sink}\n')
    code, _, err = run("run", str(file), server="")
    assert (code, err.count("\n")) == (1, 1)
    assert sentence in err


def test_a_delay_of_batches_may_have_a_unit() -> None:
    bound = make_app("ingest").parse_args(
        ["ingest", "S", "--to", "t", "--max-trigger-delay", "15m"], exit_on_error=False
    )[1]
    assert bound.arguments["source"].max_trigger_delay == 900.0
