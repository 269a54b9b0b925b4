"""No secret is in metrics, in what probes are answered or in the log, whether it is right or not.

tests/spark/test_secrets.py has what Spark shows; tests/deploy the same of a whole pipeline.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.metrics.test_endpoint import answered
from tests.support.accounts import Operator, creds_text, new_key

from jetspark.cli import app
from jetspark.metrics.endpoint import Health, serving
from jetspark.options.names import flag_name, spark_name
from jetspark.options.scopes import CONNECTION
from jetspark.spark.queries.metrics import QueryMetrics, _QueryState
from jetspark.spark.queries.progress import QueryProgress
from jetspark.spark.source.options import parse_options

if TYPE_CHECKING:
    from tests.conftest import MakeServer

WORD, WRONG = "Xq7-hidden-w0rd", "Yq8-hidden-w0rd"


class Login(NamedTuple):
    config: str
    right: dict[str, str]
    wrong: dict[str, str]
    in_url: tuple[str, str] | None = None


def users() -> Login:
    me = {"user": "me", "password": WORD}
    config = f'authorization {{ users: [ {{ user: me, password: "{WORD}" }} ] }}'
    return Login(config, me, me | {"password": WRONG}, (f"me:{WORD}@", f"me:{WRONG}@"))


def token() -> Login:
    config = f'authorization {{ token: "{WORD}" }}'
    return Login(config, {"token": WORD}, {"token": WRONG}, (f"{WORD}@", f"{WRONG}@"))


def nkey() -> Login:
    right, wrong = new_key(), new_key()
    config = f"authorization {{ users: [ {{ nkey: {right.public} }} ] }}"
    return Login(config, {"nkeySecret": right.seed}, {"nkeySecret": wrong.seed})


def credentials() -> Login:
    operator, key = Operator(), new_key()
    right = creds_text(operator.user(key), key.seed)
    wrong = creds_text(Operator().user(key), key.seed)
    return Login(operator.config(), {"credentials": right}, {"credentials": wrong})


def secrets_of(options: dict[str, str]) -> list[str]:
    """Lines of credentials that are as long as a secret."""
    values = [value for name, value in options.items() if name != "user"]
    lines = [line for value in values for line in value.splitlines()]
    return [line for line in lines if len(line) > 10 and not line.startswith(("---", "***", "N"))]


@pytest.mark.parametrize("kind", [users, token, nkey, credentials])
def test_probes_metrics_and_the_log_have_no_secret(
    kind: Any,
    make_server: MakeServer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    login: Login = kind()
    server = make_server(login.config)
    monkeypatch.setenv("JETSPARK_LOG", "json")
    for at, options in enumerate((login.right, login.wrong)):
        secrets = secrets_of(options)
        assert secrets
        shown = probed({"servers": server.url, "stream": "S"} | options)
        reachable = 'jetspark_query_server_reachable{query="q"} '
        assert f"{reachable}{1 - at}.0" in shown
        assert ("refused these credentials" in shown) is bool(at)
        if login.in_url is not None:
            place = ["--server", server.url.replace("//", f"//{login.in_url[at]}")]
        else:
            place = ["--server", server.url]
            python_names = {spark_name(name): name for name in CONNECTION}
            place += [
                f"--{flag_name(python_names[name])}={value}" for name, value in options.items()
            ]

        code = app.run(["ingest", "S", "--to", "none", "--metrics", "127.0.0.1:0", *place])
        out, err = capfd.readouterr()
        assert (code, out) == (app.FAILED, "")
        said = [json.loads(line)["message"] for line in err.splitlines()]
        assert ("refused these credentials" in said[-1]) is bool(at), said
        assert not [one for one in secrets if one in shown + err]


def probed(options: dict[str, str]) -> str:
    """What a query's metrics and probes say after a look at its servers."""
    query: Any = SimpleNamespace(isActive=True, recentProgress=[], lastProgress=None)
    nothing: Any = SimpleNamespace(count=int)
    metrics = QueryMetrics()
    one = _QueryState(query, QueryProgress(), [parse_options(options)], None, nothing, 0.0)
    one.refresh()
    metrics._followed["q"] = one
    health = Health(metrics.not_ready)
    with (
        serving("127.0.0.1:0", health, queries=metrics.documents) as port,
        metrics.exporting(),
    ):
        return "".join(answered(port, path)[1] for path in ("/readyz", "/metrics", "/live.json"))
