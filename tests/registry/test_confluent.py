"""A registry with Confluent's interface, against a scripted HTTP server."""

from __future__ import annotations

import base64
import json
import pickle
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tests.support.certificates import Certificates

from jetspark.cli.scopes import PayloadFlags, SchemaFlags, codec_of, schema_texts
from jetspark.cli.server_flags import DEFAULT_SERVER
from jetspark.errors import ConfigError, RegistryError, SchemaNotFoundError
from jetspark.payloads.protobuf_schema import message_of
from jetspark.registry import confluent
from jetspark.registry.confluent import ConfluentRegistry
from jetspark.registry.lookup import CachingLookup
from jetspark.retries import Backoff

NOT_FOUND = 404, {"error_code": 40403, "message": "Schema not found"}


class Scripted:
    """Answers by path: a status and a document, or several, one for each time."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        script = self

        self.connections: list[socket.socket] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                script.connections.append(self.connection)

            def do_GET(self) -> None:
                script.asked.append((self.path, dict(self.headers)))
                status, document = script.answer(self.path)
                body = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", body.decode())
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing to standard error."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Who has given up reads no answer."""

        self.server = Server(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, path: str) -> Any:
        found = self.answers.get(path, NOT_FOUND)
        if isinstance(found, threading.Event):
            found.wait(5)
            return NOT_FOUND
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        return found

    def drop(self) -> None:
        for one in self.connections:
            one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.server.shutdown()
        with suppress(OSError):
            self.drop()
        self.server.server_close()


@pytest.fixture
def http(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    monkeypatch.setattr(confluent, "_PAUSES", Backoff(0, 0))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    script = Scripted()
    yield script
    script.close()


def test_a_schema_is_found_by_its_id_and_by_its_name(http: Scripted) -> None:
    http.answers = {
        "/schemas/ids/7": (200, {"schema": '"int"'}),
        "/subjects/a%2Fb/versions/latest": (
            200,
            {"subject": "a/b", "version": 3, "id": 7, "schema": "{}", "schemaType": "JSON"},
        ),
        "/subjects/a%2Fb/versions/2": (200, {"version": 2, "schema": "true", "schemaType": "JSON"}),
    }
    registry = ConfluentRegistry(http.url + "/")
    found = registry.by_id(7)
    assert (found.format, found.text, found.version, found.name) == ("avro", '"int"', 7, "")
    latest = registry.by_name("a/b", None)
    assert (latest.format, latest.text, latest.version, latest.name) == ("json", "{}", 3, "a/b")
    assert registry.by_name("a/b", 2).text == "true"
    assert all("Authorization" not in headers for _, headers in http.asked)


def referring(text: str, *names: str, at: str = "x.", **more: Any) -> Any:
    """The answer with a schema that refers to these subjects."""
    references = [{"name": f"{at}{one}", "subject": one, "version": 1} for one in names]
    return 200, {"schema": text, "version": 1, "references": references, **more}


def test_references_come_each_before_what_names_it(http: Scripted) -> None:
    http.answers = {
        "/schemas/ids/1": referring("main", "A", "B"),
        "/subjects/A/versions/1": referring("a", "C"),
        "/subjects/B/versions/1": referring("b", "C"),
        "/subjects/C/versions/1": referring("c"),
    }
    found = ConfluentRegistry(http.url).by_id(1)
    referred = [(one.name, one.text) for one in found.references]
    assert referred == [("x.C", "c"), ("x.A", "a"), ("x.B", "b")]
    http.answers["/subjects/C/versions/1"] = referring("c", "A")
    with pytest.raises(SchemaNotFoundError, match="refers to others without an end"):
        ConfluentRegistry(http.url).by_id(1)


def test_references_that_double_are_asked_for_once_each(http: Scripted) -> None:
    for at in range(30):
        inner = referring("", *((f"A{at + 1}", f"B{at + 1}") if at < 29 else ()))
        http.answers[f"/subjects/A{at}/versions/1"] = inner
        http.answers[f"/subjects/B{at}/versions/1"] = inner
    http.answers["/schemas/ids/1"] = referring("", "A0", "B0")
    assert len(ConfluentRegistry(http.url).by_id(1).references) == 60
    assert len(http.asked) == 61
    http.answers["/schemas/ids/2"] = referring("", *(f"C{at}" for at in range(300)))
    http.answers |= {f"/subjects/C{at}/versions/1": referring("") for at in range(300)}
    with pytest.raises(SchemaNotFoundError, match="more than 200 others"):
        ConfluentRegistry(http.url).by_id(2)


@pytest.mark.parametrize(
    "answer",
    [
        (200, {"schema": "", "schemaType": "XSD"}),
        (400, {"error_code": 400, "message": "NumberFormatException"}),
        (422, {"error_code": 42202, "message": "invalid"}),
    ],
)
def test_an_impossible_schema_is_the_fault_of_its_payload(http: Scripted, answer: Any) -> None:
    http.answers["/schemas/ids/1"] = answer
    with pytest.raises(SchemaNotFoundError):
        ConfluentRegistry(http.url).by_id(1)
    for name in ("", ".", ".."):
        with pytest.raises(SchemaNotFoundError):
            ConfluentRegistry(http.url).by_name(name, 1)
    assert len(http.asked) == 1


def test_a_connection_is_kept_for_further_questions(http: Scripted) -> None:
    http.answers["/schemas/ids/1"] = (200, {"schema": '"int"'})
    registry = ConfluentRegistry(http.url)
    for _ in range(5):
        assert registry.by_id(1).text == '"int"'
        with pytest.raises(SchemaNotFoundError):
            registry.by_id(2)
    assert len(http.connections) == 1
    http.drop()  # as a registry does with idle ones
    assert registry.by_id(1).text == '"int"'
    assert len(http.connections) == 2


def test_protobuf_comes_as_its_source_with_what_it_imports(http: Scripted) -> None:
    whole = 'syntax = "proto3"; import "b.proto"; message A { B b = 1; }'
    part = 'syntax = "proto3"; message B { int32 n = 1; }'
    how = {"at": "", "schemaType": "PROTOBUF"}
    http.answers = {
        "/schemas/ids/1": referring(whole, "b.proto", **how),
        "/subjects/b.proto/versions/1": referring(part, **how),
    }
    found = message_of(ConfluentRegistry(http.url).by_id(1))
    files = FileDescriptorSet.FromString(base64.b64decode(found.text)).file
    assert [one.name for one in files] == ["b.proto", "schema.proto"]
    assert found.name == "A"


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (
            {"user": "key", "password": "s3cret"},
            "Basic " + base64.b64encode(b"key:s3cret").decode(),
        ),
        ({"token": "s3cret"}, "Bearer s3cret"),
    ],
)
def test_credentials_are_sent_and_shown_nowhere(
    http: Scripted, options: dict[str, Any], sent: str
) -> None:
    elsewhere = Scripted()
    elsewhere.answers["/moved"] = (200, {"schema": '"int"'})
    http.answers = {
        "/schemas/ids/1": (401, {"error_code": 401}),
        "/schemas/ids/2": (302, f"{elsewhere.url}/moved".encode()),
    }
    registry = pickle.loads(pickle.dumps(ConfluentRegistry(http.url, **options)))
    with pytest.raises(RegistryError, match=r"refuses .* \(HTTP status 401\)") as refused:
        registry.by_id(1)
    assert http.asked[0][1]["Authorization"] == sent
    assert registry.by_id(2).text == '"int"'
    assert "Authorization" not in elsewhere.asked[0][1]
    elsewhere.close()
    for text in (repr(registry), str(refused.value), repr(refused.value)):
        assert "s3cret" not in text
        assert sent.split()[1] not in text


def test_a_failure_that_passes_is_outlasted(http: Scripted) -> None:
    http.answers["/schemas/ids/1"] = [(503, b"no"), (429, {}), (200, {"schema": '"int"'})]
    assert ConfluentRegistry(http.url).by_id(1).text == '"int"'
    assert len(http.asked) == 3


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((500, {"error_code": 50001}), "cannot be reached: HTTP status 500."),
        ((404, b"<html>"), "There is no schema registry at http://"),
        ((200, b"<html>"), "Is this the URL of a schema registry?"),
        ((200, {"schema": 1}), "Is this the URL of a schema registry?"),
        ((418, b""), "cannot be reached: HTTP status 418."),
    ],
)
def test_another_answer_is_one_sentence(http: Scripted, answer: Any, sentence: str) -> None:
    http.answers["/schemas/ids/1"] = answer
    with pytest.raises(RegistryError) as failed:
        ConfluentRegistry(http.url).by_id(1)
    assert sentence in str(failed.value)
    assert http.url in str(failed.value)


def test_what_the_registry_does_not_have_is_not_asked_for_again(http: Scripted) -> None:
    with pytest.raises(SchemaNotFoundError, match="has no schema with id 5"):
        ConfluentRegistry(http.url).by_id(5)
    assert len(http.asked) == 1


def test_a_registry_out_of_reach_is_one_sentence(http: Scripted) -> None:
    http.close()
    with pytest.raises(RegistryError, match=r"cannot be reached: .*Connection refused"):
        ConfluentRegistry(http.url).by_id(5)


def test_a_silent_registry_is_given_up(http: Scripted) -> None:
    waits = threading.Event()
    http.answers["/schemas/ids/5"] = waits
    with pytest.raises(RegistryError, match=r"cannot be reached: .*timed out"):
        ConfluentRegistry(http.url, timeout=0.05).by_id(5)
    waits.set()


def test_the_certificates_of_a_file_are_trusted(http: Scripted, certificates: Certificates) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server_cert, certificates.server_key)
    secure = Scripted(context)
    secure.answers["/schemas/ids/1"] = (200, {"schema": '"int"'})
    ca = str(certificates.ca)
    assert ConfluentRegistry(secure.url, ca_file=ca).by_id(1).text == '"int"'
    with pytest.raises(RegistryError, match=r"cannot be reached: .*certificate verify failed"):
        ConfluentRegistry(secure.url).by_id(1)
    secure.close()
    with pytest.raises(ConfigError, match=r"CA file 'missing\.pem' cannot be used"):
        ConfluentRegistry(secure.url, ca_file="missing.pem").by_id(1)


def test_the_environment_names_a_proxy(http: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", http.url)
    wanted = "http://registry.example:8081"
    http.answers[f"{wanted}/schemas/ids/1"] = (200, {"schema": '"int"'})
    assert ConfluentRegistry(wanted).by_id(1).text == '"int"'


def test_a_registry_on_this_machine_is_not_asked_through_a_proxy(
    http: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login that may go there in plain text would cross the network."""
    proxy = Scripted()
    monkeypatch.setenv("http_proxy", proxy.url)
    http.answers["/moved"] = (200, {"schema": '"int"'})
    http.answers["/schemas/ids/1"] = 302, f"{http.url}/moved".encode()
    registry = ConfluentRegistry(http.url, user="me", password="s3cret")
    assert registry.by_id(1).text == '"int"'
    proxy.close()
    assert proxy.asked == []


@pytest.mark.parametrize(
    ("url", "options", "sentence"),
    [
        ("ftp://host", {}, "The URL of a registry is https://host:port"),
        ("https://", {}, "The URL of a registry is https://host:port"),
        ("host:8081", {}, "The URL of a registry is https://host:port"),
        ("https://me:s3cret@host", {}, "has no user: give user and password apart"),
        ("https://host", {"user": "a", "token": "b"}, "user and password, or its token"),
        ("http://host", {"user": "a", "password": "s3cret"}, "in plain text"),
        ("http://10.0.0.1:8081", {"token": "s3cret"}, "in plain text"),
        ("HTTP://127.0.0.1.example", {"token": "s3cret"}, "in plain text"),
        ("https://[host", {}, "The URL of a registry is https://host:port"),
        ("https://host:port", {}, "The URL of a registry is https://host:port"),
    ],
)
def test_an_unusable_address_is_refused(url: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        ConfluentRegistry(url, **options)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8081", "127.9.9.9", "[::1]:8081"])
def test_a_login_may_stay_on_this_machine(host: str) -> None:
    ConfluentRegistry(f"http://{host}", token="s3cret")
    ConfluentRegistry("http://registry.example:8081")  # nothing to protect


def test_flags_of_commands_take_the_login_from_the_url_and_name_a_version(http: Scripted) -> None:
    schema = {"type": "record", "name": "Till", "fields": [{"name": "id", "type": "int"}]}
    http.answers["/subjects/tills/versions/2"] = (200, {"version": 2, "schema": json.dumps(schema)})
    registry = http.url.replace("//", "//me:s3cr%40t@")
    given: dict[str, Any] = {"registry": registry, "schema_name": "tills", "schema_version": 2}
    codec = codec_of(SchemaFlags(**given), "encode", "avro", DEFAULT_SERVER)
    assert codec is not None
    assert codec.encode({"id": 1}) == (b"\x02", None)
    login = base64.b64encode(b"me:s3cr@t").decode()
    assert http.asked[0][1]["Authorization"] == f"Basic {login}"
    assert schema_texts(PayloadFlags(**given, decode="avro")) == {
        "decode": "avro",
        "registry": http.url,
        "registryUser": "me",
        "registryPassword": "s3cr@t",
        "schemaName": "tills",
        "schemaVersion": "2",
    }


class Dripping:
    """A server that sends a beginning, and then one part after the other without an end."""

    def __init__(self, beginning: bytes, part: bytes, pause: float) -> None:
        self._parts = beginning, part
        self._pause = pause
        self._over = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Dripping:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        beginning, part = self._parts
        while not self._over.is_set():
            with suppress(OSError):
                connection, _ = self._listening.accept()
                with connection:
                    connection.settimeout(1)  # nobody reads what is sent after the end
                    connection.recv(65536)
                    connection.sendall(beginning)
                    while not self._over.wait(self._pause):
                        connection.sendall(part)


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.full
@pytest.mark.parametrize(
    ("beginning", "part", "pause"),
    [
        (OK + b"Content-Length: 1000000\r\n\r\n", b" ", 0.02),
        (OK + b"\r\n", b" ", 0.02),  # until the connection ends
        (OK, b"X", 0.02),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 0),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1;" + b"x" * 60_000 + b"\r\n \r\n", 0.001),
    ],
)
def test_the_time_of_an_attempt_is_that_of_the_whole_answer(
    beginning: bytes, part: bytes, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a registry could hold a task, and the query, for ever."""
    monkeypatch.setattr(confluent, "_ATTEMPTS", 2)
    monkeypatch.setattr(confluent, "_PAUSES", Backoff(0.01, 0.01))
    with Dripping(beginning, part, pause) as server:
        registry = ConfluentRegistry(server.url, timeout=0.3)
        before = time.monotonic()
        with pytest.raises(RegistryError, match="timed out"):
            registry.by_id(1)
        assert time.monotonic() - before < 10


def test_a_schema_that_is_too_large_is_refused(http: Scripted) -> None:
    http.answers["/schemas/ids/1"] = 200, {"schema": "x" * (5 << 20)}
    with pytest.raises(SchemaNotFoundError, match="larger than 4 MiB"):
        ConfluentRegistry(http.url).by_id(1)


def test_what_is_remembered_is_bounded(http: Scripted) -> None:
    """Whoever publishes names the ids, and may know those of the largest schemas."""
    remembering = CachingLookup(ConfluentRegistry(http.url))
    tracemalloc.start()
    try:
        for number in range(30):
            http.answers[f"/schemas/ids/{number}"] = 200, {"schema": "x" * (3 << 20)}
            assert len(remembering.by_id(number).text) == 3 << 20
            del http.answers[f"/schemas/ids/{number}"]
        assert tracemalloc.get_traced_memory()[0] < 50 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("status", [400, 403])
def test_a_schema_refused_alone_is_the_fault_of_who_names_it(http: Scripted, status: int) -> None:
    """Otherwise a payload with its id would end each run."""
    http.answers["/schemas/ids/1"] = status, b"<html>"
    with pytest.raises(RegistryError):
        ConfluentRegistry(http.url).by_id(1)
    http.answers["/schemas/types"] = 200, ["AVRO"]
    with pytest.raises(SchemaNotFoundError, match=f"does not give .* with id 1 .*{status}"):
        ConfluentRegistry(http.url).by_id(1)


def test_no_redirect_leaves_http(http: Scripted) -> None:
    http.answers["/schemas/ids/1"] = 302, b"ftp://127.0.0.1:1/schema"
    with pytest.raises(RegistryError, match="neither http:// nor https://"):
        ConfluentRegistry(http.url).by_id(1)


def test_no_redirect_leaves_tls(http: Scripted, certificates: Certificates) -> None:
    """On a way without it anybody could write the schema."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server_cert, certificates.server_key)
    secure = Scripted(context)
    http.answers["/moved"] = 200, {"schema": '"int"'}
    secure.answers["/schemas/ids/1"] = 302, f"{http.url}/moved".encode()
    try:
        with pytest.raises(RegistryError, match="to a place without TLS"):
            ConfluentRegistry(secure.url, ca_file=str(certificates.ca)).by_id(1)
    finally:
        secure.close()
    assert http.asked == []
