"""docs/from-nats-py.md has every public name of nats-py, in the table of its class."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import nats
import nats.errors
import nats.js.api as api
import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.kv import KeyValue
from nats.js.object_store import ObjectStore
from nats.micro import add_service
from nats.micro.service import Service

PAGE = Path(__file__).parents[2] / "docs" / "from-nats-py.md"


def names_of(owner: object) -> set[str]:
    annotated = getattr(owner, "__annotations__", {})
    return {name for name in {*dir(owner), *annotated} if not name.startswith("_")}


def classes_of(*modules: object) -> set[str]:
    return {
        name
        for module in modules
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__  # type: ignore[attr-defined]
    }


TYPING = {"annotations", "List", "Union"}
WANTED: dict[str, set[str]] = {
    "Module `nats`": names_of(nats) - TYPING,
    "Options of `connect`": set(inspect.signature(Client.connect).parameters) - {"self"},
    "Client": names_of(Client),
    "Message": names_of(Msg),
    "Metadata": names_of(Msg.Metadata),
    "Subscription": names_of(Subscription),
    "JetStream": names_of(JetStreamContext),
    "Push subscription": names_of(JetStreamContext.PushSubscription),
    "Pull subscription": names_of(JetStreamContext.PullSubscription),
    "Key-Value": names_of(KeyValue),
    "Object store": names_of(ObjectStore),
    "Services": names_of(Service) | {add_service.__name__},
    "Configurations": classes_of(api),
    "Errors": classes_of(nats.errors, nats.js.errors),
}


def told(section: str) -> set[str]:
    """The names in the first column of a section's tables."""
    _, _, text = PAGE.read_text("utf-8").partition(f"\n## {section}\n")
    rows = re.findall(r"^\| (`.*?) \|", text.partition("\n## ")[0], re.MULTILINE)
    return set(re.findall(r"`(\w+)`", "\n".join(rows)))


@pytest.mark.parametrize("section", WANTED)
def test_every_public_name_of_nats_py_has_its_row(section: str) -> None:
    assert len(WANTED[section]) > 3
    assert WANTED[section] - told(section) == set()
    assert told(section) - WANTED[section] == set()
