"""Writes the classes of the blocking client out of the asyncio ones.

`python scripts/delegations.py` writes the modules of src/jetspark/blocking that MODULES names, and
with `--check` says which are not as they would be written. Signatures and types are taken from the
source of the asyncio classes, and the first paragraphs of their docstrings (at run time
`docstrings.twin_of` fills in the whole ones). A class inherits what is written by hand for it in
blocking/by_hand, if there is anything: a class `Base…`. It gets every other public name of its
asyncio twin:

- a property, or an attribute with a docstring, is read;
- a coroutine function runs in the event loop's thread (`LoopThread.run`), and so does a plain one
  (`call`);
- a result that has a twin is wrapped in it. A plain function with such a result is called directly:
  it only makes the object. With a callback, the twin makes it, and hands on its own callback.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import re
import runpy
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "src" / "jetspark" / "blocking"
HEAD = "# Written by `python scripts/delegations.py`: change by_hand/, or the asyncio class.\n"

without_async = runpy.run_path(str(FOLDER / "docstrings.py"))["without_async"]

# -- the tables ------------------------------------------------------------------------------------


class Feature(NamedTuple):
    """One module to be written."""

    says: str
    classes: tuple[str, ...]
    """The asyncio classes, as module:Class below `jetspark`."""


MODULES = {
    "client": Feature("Core NATS", ("client.subscription:Subscription", "client.client:Client")),
    "consumers": Feature(
        "Consumers and their messages",
        (
            "jetstream.consume:ConsumerMessages",
            "jetstream.ordered:OrderedMessages",
            "jetstream.consumers:PushMessages",
            "jetstream.consumers:Consumer",
            "jetstream.consumers:PullConsumer",
            "jetstream.consumers:PushConsumer",
        ),
    ),
    "jetstream": Feature("JetStream", ("jetstream.events:Events", "full_client:JetStream")),
    "kv": Feature(
        "Key-Value buckets",
        (
            "kv.lock:Lock",
            "kv.lock:Election",
            "kv.watch:LiveBucket",
            "kv.bucket:ReadOnlyBucket",
            "kv.bucket:Bucket",
        ),
    ),
    "objects": Feature("Object stores", ("objects.store:ObjectStore",)),
    "services": Feature(
        "Services",
        (
            "services.service:EndpointCalls",
            "services.service:Group",
            "services.service:Service",
            "services.discovery:Services",
        ),
    ),
    "groups": Feature(
        "Consumer groups",
        (
            "groups.member:GroupMember",
            "groups.group:ConsumerGroup",
            "groups.group:StaticGroup",
            "groups.group:ElasticGroup",
        ),
    ),
    "dead_letters": Feature(
        "Dead letters",
        ("dead_letters.worker:DeadLetterWorker", "dead_letters.dead_letters:DeadLetters"),
    ),
    "identity": Feature("Authorization callouts", ("identity.callout:AuthCallout",)),
    "system": Feature("The system account", ("system.system:System",)),
    "registry": Feature("Schema registries", ("registry.client:SchemaRegistry",)),
    "full_client": Feature("The client that users get", ("full_client:Client",)),
}

ABSENT = {
    # Public in the asyncio class, but not for users of the blocking one, and why.
    **dict.fromkeys(
        (
            *("Client.adopt", "Client.ask", "Client.ask_many"),
            *("Client.require_open", "JetStream.api", "ReadOnlyBucket.client"),
            *("Lock.lose", "ObjectStore.writer", "AuthCallout.begin"),
            *("EndpointCalls.owner", "Group.owner", "Service.owner"),
            *("EndpointCalls.endpoint_options", "EndpointCalls.decorator"),
            *("Service.begin", "Service.add", "Service.add_nowait"),
        ),
        "for what is built on it",
    ),
    "Client.listen": "its handler runs inside the read loop",
    "Client.check_loop": "the loop is nobody's business",
    **dict.fromkeys(("abandon", "left_by", "handled", "source"), "for the client"),
    "callback_task": "the loop is nobody's business",
    **dict.fromkeys(("take_queued", "take_last"), "iterating takes many at once"),
}

CALLBACKS = ("callback", "on_change", "handler", "progress")
"""Parameters that are called, in a thread of their own or in the caller's."""

CONVERTED = {"sentinel": "judging(self._caller, sentinel)"}
"""Arguments that are not handed on as they are."""

FUNCTIONS = {"JsMsg": "received", "FetchResult": "fetched", "progress": "transfer"}
"""What makes a twin in place of its class; and what makes calls with `progress`."""

ASYNC = re.compile(r"\b([Aa]wait\w*|[Aa]sync|coroutine\w*|[Cc]ancel(led|ling)?)\b")

# -- reading the asyncio classes -------------------------------------------------------------------


class Call(NamedTuple):
    """A method, property or attribute of an asyncio class."""

    path: str
    """Class.name"""
    module: str
    arguments: ast.arguments | None
    """None: it is read."""
    returns: str
    doc: str
    is_async: bool = False


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


@cache
def names_of(module: str) -> dict[str, tuple[str, str]]:
    """What the names of a module mean: the module they come from, and their name there."""
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = (str(node.module), alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name] = (alias.name, "")
    found.update({name: (module, name) for name in defined_in(tree_of(module))})
    return found


def defined_in(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def public_names(package: str) -> tuple[str, ...]:
    """Those of an asyncio package, if there is one."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        return ()
    return tuple(getattr(importlib.import_module(package), "__all__", names_of(package)))


def class_in(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def asyncio_class(path: str) -> type:
    module, _, name = path.partition(":")
    cls: type = getattr(importlib.import_module(f"jetspark.{module}"), name)
    return cls


def path_of(cls: type) -> str:
    return f"{cls.__module__.removeprefix('jetspark.')}:{cls.__name__}"


def calls_of(cls: type) -> Iterator[Call]:
    """The public ones that stand in the class itself."""
    module = cls.__module__
    for node in class_in(tree_of(module), cls.__name__).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name == "__init__":
            yield from attributes_of(node, cls.__name__, module)
        if node.name.startswith("_"):
            continue
        reads = [ast.unparse(decorator) for decorator in node.decorator_list] == ["property"]
        assert reads or not node.decorator_list, f"{path_of(cls)}.{node.name} is decorated"
        yield Call(
            f"{cls.__name__}.{node.name}",
            module,
            None if reads else node.args,
            ast.unparse(node.returns) if node.returns else "None",
            ast.get_docstring(node) or "",
            isinstance(node, ast.AsyncFunctionDef),
        )


def attributes_of(
    init: ast.FunctionDef | ast.AsyncFunctionDef, owner: str, module: str
) -> Iterator[Call]:
    """What a constructor sets in public, with the docstring below."""
    given = {each.arg: each.annotation for each in (*init.args.args, *init.args.kwonlyargs)}
    for node, after in zip(init.body, init.body[1:], strict=False):
        match node, after:
            case (
                ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Name(id=value)),
                ast.Expr(value=ast.Constant(value=str(doc))),
            ) if value in given:
                annotation = given[value]
            case (
                ast.AnnAssign(target=ast.Attribute(attr=name), annotation=annotation),
                ast.Expr(value=ast.Constant(value=str(doc))),
            ):
                pass
            case _:
                continue
        if not name.startswith("_"):
            assert annotation is not None
            yield Call(
                f"{owner}.{name}", module, None, ast.unparse(annotation), inspect.cleandoc(doc)
            )


# -- reading what is written by hand ---------------------------------------------------------------

GENERATED = {path: module for module, feature in MODULES.items() for path in feature.classes}


@cache
def by_hand() -> dict[str, ast.Module]:
    """The modules that are written by hand, below jetspark.blocking."""
    files = [FOLDER / "twin.py", FOLDER / "iterators.py", *(FOLDER / "by_hand").glob("*.py")]
    return {
        file.relative_to(FOLDER).with_suffix("").as_posix().replace("/", "."): ast.parse(
            file.read_text("utf-8")
        )
        for file in files
    }


def twin_module(module: str, name: str) -> str | None:
    """The blocking module that has the twin of what an asyncio module calls `name`."""
    inside = module.removeprefix("jetspark.")
    if (found := GENERATED.get(f"{inside}:{name}")) is not None:
        return found
    for own, tree in by_hand().items():
        # The events of the connection and those of JetStream have the same names.
        fits = own != "by_hand.client" or inside.startswith("client.")
        if fits and name in defined_in(tree) and not name.endswith("T"):
            return own
    return None


def names_by_hand(module: str, name: str) -> Iterator[str]:
    """The public names of a class that is written by hand, and of its bases there."""
    trees = by_hand()
    if module not in trees or name not in defined_in(trees[module]):
        module = next((own for own, tree in trees.items() if name in defined_in(tree)), "")
        if not module:
            return
    cls = class_in(trees[module], name)
    for node in ast.walk(cls):
        match node:
            case ast.FunctionDef(name=defined):
                yield defined
            case ast.Attribute(value=ast.Name(id="self"), attr=defined, ctx=ast.Store()):
                yield defined
    for base in cls.bases:
        yield from names_by_hand(module, ast.unparse(base).partition("[")[0])


def takes_client(module: str, name: str) -> bool:
    """Whether users make this class themselves, out of a client."""
    tree = by_hand().get(f"by_hand.{module.rpartition('.')[2]}")
    if tree is None or f"Base{name}" not in defined_in(tree):
        return False
    for node in class_in(tree, f"Base{name}").body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return node.args.args[1].arg == "client"
    return False


# -- writing ---------------------------------------------------------------------------------------


def arguments_of(call: ast.arguments, others: dict[str, str]) -> str:
    """The arguments, handed on."""
    positional = [*call.posonlyargs, *call.args][1:]
    texts = [others.get(arg.arg, arg.arg) for arg in positional]
    texts += [f"{arg.arg}={others.get(arg.arg, arg.arg)}" for arg in call.kwonlyargs]
    if call.kwarg is not None:
        texts.append(f"**{call.kwarg.arg}")
    return ", ".join(texts)


def parameters_of(arguments: ast.arguments | None) -> list[ast.arg]:
    if arguments is None:
        return []
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return every + [arg for arg in (arguments.vararg, arguments.kwarg) if arg]


def docstring(name: str, doc: str, indent: int) -> str:
    """The first paragraph as a literal."""
    assert doc, f"{name} has no docstring"
    assert "\\" not in doc, f"{name}: a backslash in its docstring"
    said = without_async(doc)
    assert not (word := ASYNC.search(said)), f"{name} says {word}: see jetspark.blocking.docstrings"
    paragraph = " ".join(said.partition("\n\n")[0].split())
    margin = " " * indent
    text = textwrap.fill(
        f'"""{paragraph}"""',
        100,
        initial_indent=margin,
        subsequent_indent=margin,
        break_on_hyphens=False,
        break_long_words=False,
    )
    if "\n" in text:
        text = f'{text[:-3]}\n{margin}"""'
    return text + "\n"


@dataclass
class Module:
    """The text of one module, and what it imports."""

    name: str
    text: str = ""
    imports: dict[str, str] = field(default_factory=dict)
    """Names, and their import statements."""

    def use(self, text: str, source: str) -> str:
        """Import what a piece of Python names, as it is meant in the module `source`."""
        known = names_of(source)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name) and node.id in known:
                module, original = known[node.id]
                if (twin := twin_module(module, node.id)) is not None:
                    module = f"jetspark.blocking.{twin}"
                self.add(node.id, module, original)
        return text

    def use_by_hand(self, name: str) -> str:
        """Import what is written by hand, and return it."""
        own = next(own for own, tree in by_hand().items() if name in defined_in(tree))
        self.add(name, f"jetspark.blocking.{own}", name)
        return name

    def add(self, name: str, module: str, original: str) -> None:
        if module == f"jetspark.blocking.{self.name}":
            return
        line = f"from {module} import {original}" if original else f"import {module}"
        if original and name != original:
            line += f" as {name}"
        if (other := self.imports.setdefault(name, line)) != line:
            other_module = other.split()[1]
            same = getattr(sys.modules[module], original) is getattr(
                sys.modules[other_module], original, None
            )
            assert same, f"two meanings of {name} in {self.name}"

    def write_class(self, path: str) -> set[str]:
        """Returns the names that it has, inherited ones included."""
        cls = asyncio_class(path)
        name, module = cls.__name__, f"by_hand.{self.name}"
        parents: list[type] = []
        for base in cls.__mro__[1:]:
            if path_of(base) in GENERATED and not any(issubclass(each, base) for each in parents):
                parents.append(base)
        bases, has = [], set()
        if module in by_hand() and f"Base{name}" in defined_in(by_hand()[module]):
            bases.append(self.use_by_hand(f"Base{name}"))
            has |= set(names_by_hand(module, f"Base{name}"))
        for parent in parents:
            in_module = f"jetspark.blocking.{GENERATED[path_of(parent)]}"
            called = f"Core{name}" if parent.__name__ == name else parent.__name__
            self.add(called, in_module, parent.__name__)
            bases.append(called)
        bases = bases or [self.use_by_hand("AsyncBlock" if hasattr(cls, "__aenter__") else "Twin")]
        self.add(f"Async{name}", cls.__module__, name)
        self.add("twin_of", "jetspark.blocking.docstrings", "twin_of")
        lines = [
            f"@twin_of(Async{name})",
            f"class {name}({', '.join(bases)}):",
            docstring(name, inspect.getdoc(cls) or "", 4),
            f"    _inner: Async{name}",
        ]
        inherited = {base for parent in parents for base in parent.__mro__}
        calls = {
            call.path.partition(".")[2]: call
            for base in reversed(cls.__mro__)
            if base not in inherited and base.__module__.startswith("jetspark.")
            for call in calls_of(base)
        }
        for each, call in calls.items():
            if each not in has and not {f"{name}.{each}", call.path, each} & ABSENT.keys():
                lines.append(self.write_call(call))
        self.text += "\n\n" + "\n".join(lines) + "\n"
        return has

    def write_call(self, call: Call) -> str:
        name = call.path.partition(".")[2]
        returns = call.returns.replace("asyncio.Future[", "Future[")
        self.use(returns, call.module)
        for arg in parameters_of(call.arguments):
            if arg.annotation is not None:
                self.use(ast.unparse(arg.annotation), call.module)
        doc = docstring(call.path, call.doc, 8)
        if call.arguments is None:
            head = f"    @property\n    def {name}(self) -> {returns}:\n"
            return f"\n{head}{doc}        return self._inner.{name}"
        for value in (*call.arguments.defaults, *call.arguments.kw_defaults):
            if value is not None:
                self.use(ast.unparse(value), call.module)
        head = f"    def {name}({ast.unparse(call.arguments)}) -> {returns}:\n"
        body = self.body(name, call)
        return f"\n{head}{doc}        {body if returns == 'None' else f'return {body}'}"

    def body(self, name: str, call: Call) -> str:
        assert call.arguments is not None
        known = [arg.arg for arg in parameters_of(call.arguments)]
        converted = {name: text for name, text in CONVERTED.items() if name in known}
        for text in converted.values():
            self.use_by_hand(text.partition("(")[0])
        result = re.match(r"\w*", call.returns)[0]  # type: ignore[index]
        module = twin_module(names_of(call.module).get(result, ("", ""))[0], result)
        callback = next((each for each in CALLBACKS if each in known), None)
        handed = arguments_of(call.arguments, converted)
        direct = f"self._inner.{name}({handed})"
        in_loop = f"self._thread.{'run' if call.is_async else 'call'}(self._inner.{name}, {handed})"
        in_loop = in_loop.replace(", )", ")")
        if result == "Self":
            return f"type(self)(self._caller, {direct})"
        make = FUNCTIONS.get(result) or FUNCTIONS.get(callback or "")
        if make is not None:
            self.use_by_hand(make)
        elif module is None:
            return in_loop
        elif takes_client(module, result):
            return f"{result}(self, {handed})"
        make = make or result
        if callback is not None:
            handed = arguments_of(call.arguments, {callback: "forward"})
            begin = f"lambda forward: self._inner.{name}({handed})"
            return f"{make}(self._caller, {begin}, {callback})"
        return f"{make}(self._caller, {in_loop if call.is_async else direct})"

    def whole(self) -> str:
        feature = MODULES[self.name]
        package = f"jetspark.{self.name}"
        exported = {path.partition(":")[2] for path in feature.classes}
        public = public_names(package)
        if public:
            exported &= {*public, "JetStream"}
            for name in public:
                module, original = names_of(package)[name]
                if name not in exported and (twin := twin_module(module, name)) is not None:
                    self.add(name, f"jetspark.blocking.{twin}", original)
                    exported.add(name)
        imports = "\n".join(self.imports.values())
        return (
            f'{HEAD}"""{feature.says} without async.\n\n'
            'Of docstrings it has the first paragraphs; `help()` shows all.\n"""\n\n'
            f"from __future__ import annotations\n\n{imports}\n\n"
            f"__all__ = {sorted(exported)!r}\n{self.text}"
        )


# -- the files -------------------------------------------------------------------------------------


def written() -> dict[str, str]:
    """The generated files, formatted."""
    with tempfile.TemporaryDirectory() as folder:
        for name, feature in MODULES.items():
            module = Module(name)
            for path in feature.classes:
                module.write_class(path)
            Path(folder, f"{name}.py").write_text(module.whole(), "utf-8")
        for step in (
            ("check", "--select=I,UP,F401,RUF022", "--fix", "--quiet"),
            ("format", "--quiet"),
        ):
            command = [sys.executable, "-m", "ruff", *step, "--no-cache"]
            command += ["--config", str(ROOT / "pyproject.toml"), folder]
            command += ["--config", 'lint.isort.known-first-party=["jetspark"]']
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stdout + done.stderr)
        return {file.name: file.read_text("utf-8") for file in sorted(Path(folder).glob("*.py"))}


def committed() -> dict[str, str]:
    """The generated files as they are."""
    texts = {file.name: file.read_text("utf-8") for file in sorted(FOLDER.glob("*.py"))}
    return {name: text for name, text in texts.items() if text.startswith(HEAD)}


def differing() -> list[str]:
    """The files that are not what would be written, or should not be there."""
    ours, theirs = written(), committed()
    return sorted(
        name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The generated classes of the blocking client.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when they differ")
    if parser.parse_args().check:
        if names := differing():
            raise SystemExit(f"Run `python scripts/delegations.py`: {', '.join(names)} differ.")
        return
    files = written()
    for name in committed().keys() - files.keys():
        (FOLDER / name).unlink()
    for name, text in files.items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
