"""An authorization callout service without async."""

from __future__ import annotations

import threading

import pytest
from tests.blocking.conftest import in_threads
from tests.conftest import MakeServer
from tests.support.callout import CalloutKeys

from jetspark.blocking import connect
from jetspark.errors import AuthError, CalloutRefusal
from jetspark.identity import AuthRequest, CurveKeyPair, Grant


def test_callout_handlers_run_in_threads_at_once(make_server: MakeServer) -> None:
    keys = CalloutKeys(xkey=CurveKeyPair.new())
    server = make_server(keys.config())
    both = threading.Barrier(2, timeout=30)

    def authorize(request: AuthRequest) -> Grant:
        if request.connect_opts.user == "eve":
            raise CalloutRefusal("not eve")
        both.wait()
        return Grant(account="APP")

    def login(user: str) -> None:
        with connect(server.url, user=user, password="x", connect_timeout=30) as nc:
            nc.flush()
            names.append(user)

    names: list[str] = []
    with (
        connect(server.url, user="auth", password="auth") as nc,
        nc.auth_callout(authorize, signer=keys.signer, xkey=keys.xkey) as callout,
    ):
        in_threads(2, lambda number: login(("ann", "bob")[number]))
        assert sorted(names) == ["ann", "bob"]
        with pytest.raises(AuthError):
            login("eve")
        assert (callout.stats.granted, callout.stats.refused) == (2, 1)
    callout.wait_stopped()
