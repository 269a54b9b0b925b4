"""The command line as a whole: help, errors as sentences, exit codes."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from tests.support.processes import finish, python

from jetspark.cli import app
from jetspark.cli.main import main
from jetspark.cli.where import spark_where
from jetspark.errors import ConfigError
from jetspark.version import __version__
from jetspark.wire.kernel import IMPLEMENTATION

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def add_command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Makes a function the command `jetspark probe`."""

    def add(function: Callable[[], object]) -> None:
        module = ModuleType("probe_module")
        module.probe = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "probe_module", module)
        monkeypatch.setitem(app._COMMANDS, "probe", ("probe_module:probe", "A probe."))

    return add


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--help"]) == app.DONE
    help_text = capsys.readouterr().out
    assert all(name in help_text for name in app._COMMANDS)


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([]) == app.DONE
    assert "Usage: jetspark" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--version"]) == app.DONE
    kernel = {"c": "C", "python": "plain-Python"}[IMPLEMENTATION]
    assert capsys.readouterr().out == f"jetspark {__version__} ({kernel} kernel)\n"


@pytest.mark.parametrize(
    "arguments", [["bogus"], ["--bogus"], ["server", "--bogus"], ["server", "--port", "many"]]
)
def test_wrong_usage_is_said_on_standard_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(arguments) == app.WRONG_USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert arguments[-1] in captured.err
    assert "Traceback" not in captured.err


def test_error_is_one_sentence(
    add_command: Callable[[Callable[[], object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "Stream [ORDRES] not found; " + "a long line is not broken, " * 8

    def probe() -> None:
        raise ConfigError(sentence)

    add_command(probe)
    assert app.run(["probe"]) == app.FAILED
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"{sentence}\n")


def test_interrupt_has_its_own_exit_code(
    add_command: Callable[[Callable[[], object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def probe() -> None:
        raise KeyboardInterrupt

    add_command(probe)
    assert app.run(["probe"]) == app.INTERRUPTED
    assert capsys.readouterr() == ("", "")


def test_mistake_of_our_own_is_not_hidden(
    add_command: Callable[[Callable[[], object]], None],
) -> None:
    def probe() -> None:
        raise ZeroDivisionError

    add_command(probe)
    with pytest.raises(ZeroDivisionError):
        app.run(["probe"])


@pytest.mark.parametrize(("result", "code"), [(None, 0), (7, 7), ("text", 0)])
def test_result_of_a_command_is_the_exit_code(
    add_command: Callable[[Callable[[], object]], None], result: object, code: int
) -> None:
    add_command(lambda: result)
    assert app.run(["probe"]) == code


def test_command_is_imported_when_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(app._COMMANDS, "probe", ("no_such_module:probe", "A probe."))
    assert app.run(["--help"]) == app.DONE


WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without())
from jetspark.cli.main import main
from jetspark.cli.where import spark_where
main()
"""


@pytest.mark.parametrize("library", ["cyclopts", "rich"])
def test_missing_extra_is_named(library: str) -> None:
    with python(WITHOUT, library) as process:
        sentence = f"The command line needs {library}: pip install 'jetspark[cli]'.\n"
        assert finish(process) == (1, "", sentence)


def test_another_missing_module_is_not_taken_for_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jetspark.cli.app", None)
    with pytest.raises(ModuleNotFoundError):
        main()


def test_main_exits_with_the_code_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["jetspark", "--bogus"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2


def test_credentials_in_a_url_become_options_for_spark() -> None:
    assert spark_where("nats://u:p@a:1,tls://u:p@b", None) == {
        "servers": "nats://a:1,tls://b:4222",
        "user": "u",
        "password": "p",
    }
    assert spark_where("nats://t@a", None) == {"servers": "nats://a:4222", "token": "t"}
    assert spark_where(None, "prod") == {"context": "prod"}
    assert spark_where(None, None) == {}
    with pytest.raises(ConfigError, match="the same user"):
        spark_where("nats://u:p@a,nats://b", None)
