"""What the site has beyond docs/: pages made from the code, and pages of the repository.

A hook of mkdocs (mkdocs.yml names it). `python scripts/docs_site.py` prints the public names.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

ROOT = Path(__file__).parent.parent
# In this order a name that several modules have is described by the first one.
MODULES = (
    "jetspark.errors", "jetspark", "jetspark.blocking", "jetspark.jetstream", "jetspark.kv",
    "jetspark.objects", "jetspark.services", "jetspark.documents", "jetspark.documents.events",
    "jetspark.backup",
    "jetspark.dead_letters", "jetspark.groups", "jetspark.registry", "jetspark.payloads",
    "jetspark.identity",
    "jetspark.acl", "jetspark.system", "jetspark.tracing", "jetspark.traces", "jetspark.server",
    "jetspark.spark",
)  # fmt: skip
# Modules that have more than what is public.
CHOSEN = {
    "jetspark.metrics": ("endpoint.serving", "endpoint.Health"),
    "jetspark.ranges": ("backup.open_backup",),
    "jetspark.connection": ("options.make_options",),
    "jetspark.registry.lookup": ("schema_lookup",),
}  # fmt: skip
# Pages from outside docs/.
OUTSIDE = {
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples/index.md",
    **{
        str(file.relative_to(ROOT)): f"examples/{file.stem}.md"
        for file in sorted(ROOT.glob("examples/*.py"))
    },
}
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+:|#)([^)\s#]+)(#[^)]*)?\)")


# -- public names --------------------------------------------------------------------------------


def public_names() -> dict[str, dict[str, str]]:
    """For each public module its names, each with the path of what it names."""
    found = {}
    for name in MODULES:
        module = import_module(name)
        text = inspect.getsource(module)
        names = getattr(module, "__all__", None) or sorted(
            {*re.findall(r"^from .* import (\w+) as \1$", text, re.MULTILINE)}
            or {key for key, value in vars(module).items() if _is_own(value, name)}
        )
        found[name] = {
            key: _path(name, key, getattr(module, key)) for key in names if key[0] != "_"
        }
    for name, keys in CHOSEN.items():
        found[name] = {key: f"{name}.{key}" for key in keys}
    return found


def _is_own(value: Any, module: str) -> bool:
    is_code = inspect.isclass(value) or inspect.isfunction(value)
    return is_code and value.__module__ == module and value.__name__[0] != "_"


def _path(module: str, name: str, value: Any) -> str:
    if inspect.isclass(value) or inspect.isfunction(value):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{'jetspark.public_names' if module == 'jetspark' else module}.{name}"


def api_pages() -> dict[str, str]:
    """The reference of each module, in Markdown for mkdocstrings."""
    pages, where = {}, {}
    for module, names in public_names().items():
        summary = (import_module(module).__doc__ or "").partition("\n")[0]
        page = [f"# {module}\n\n{summary}\n"]
        for name, path in names.items():
            page.append(f"## {module}.{name} {{ #{module}.{name} }}\n")
            if path in where:
                home = where[path].rpartition(".")[0]
                page.append(f"The same as [{where[path]}]({home}.md#{where[path]}).\n")
            else:
                where[path] = f"{module}.{name}"
                page.append(f"::: {path}\n")
        pages[f"api/{module}.md"] = "\n".join(page)
    return pages


# -- commands ------------------------------------------------------------------------------------


def commands_page() -> str:
    """The help of every command."""
    from jetspark.cli.app import COMMANDS, make_app

    head = "# Commands\n\nThe `--help` of each command; [the guide](guide-cli.md) explains them.\n"
    parts = [head]
    for name in COMMANDS:
        text = make_app(name)[name].generate_docs(heading_level=2, usage_name=f"jetspark {name}")
        text = re.sub(
            r"^#+ Table of Contents\n(?:\n|- .*\n| +- .*\n)*", "", text, flags=re.MULTILINE
        )
        text = re.sub(rf"^(#+) {name}\b", rf"\1 jetspark {name}", text, flags=re.MULTILINE)
        text = text.replace(f"(#{name}-", f"(#jetspark-{name}-")
        parts.append(
            re.sub(r"\*\[default: (.*)\]\*$", r"(default: `\1`)", text, flags=re.MULTILINE)
        )
    return "\n".join(parts)


# -- mkdocs --------------------------------------------------------------------------------------


def on_config(config: Any) -> Any:
    """Append the made pages to the navigation."""
    reference = next(part["Reference"] for part in config.nav if "Reference" in part)
    reference.insert(0, {"Python": [{m.removeprefix("api/")[:-3]: m} for m in api_pages()]})
    config.nav += [
        {"Examples": [page for page in OUTSIDE.values() if page.startswith("examples/")]}
    ]
    config.nav += [{"Project": [page for page in OUTSIDE.values() if "/" not in page]}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the made pages."""
    from mkdocs.structure.files import File

    made = api_pages() | {"commands.md": commands_page()}
    for source, page in OUTSIDE.items():
        text = (ROOT / source).read_text("utf-8")
        if source.endswith(".py"):
            text = f"# {Path(source).name}\n\n```python\n{text}```\n"
        made[page] = with_links(text, source)
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of docs/ that lead out of it."""
    source = page.file.src_uri
    if page.file.generated_by:
        return markdown
    return with_links(markdown, f"docs/{source}")


def with_links(text: str, source: str) -> str:
    """The links of a file of the repository as links of the site; others become plain text."""
    page = OUTSIDE.get(source) or source.removeprefix("docs/")

    def link(match: re.Match[str]) -> str:
        said, target, anchor = match[1], match[2], match[3] or ""
        wanted = normpath(f"{dirname(source)}/{target}".lstrip("/"))
        there = OUTSIDE.get(wanted) or (
            wanted.removeprefix("docs/") if wanted.startswith("docs/") else None
        )
        if wanted == "README.md":
            there = "index.md"
        if there is None:
            return said
        return f"[{said}]({relpath(there, dirname(page) or '.')}{anchor})"

    return _LINK.sub(link, text)


def on_post_build(config: Any) -> None:
    """llms.txt: each page with its first sentence, and llms-full.txt: all of docs/."""
    from mkdocs.structure.files import Files  # noqa: F401

    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    whole = []
    for file in sorted((ROOT / "docs").glob("*.md")):
        text = file.read_text("utf-8")
        title, _, rest = text.partition("\n")
        first = re.split(r"(?<=[.:])\s", " ".join(rest.strip().split("\n\n")[0].split()))[0]
        place = "" if file.stem == "index" else f"{file.stem}/"
        lines.append(f"- [{title.lstrip('# ')}]({config.site_url or ''}/{place}): {first}")
        whole.append(text)
    site = Path(config.site_dir)
    (site / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (site / "llms-full.txt").write_text("\n\n".join(whole), "utf-8")


if __name__ == "__main__":
    for module, names in public_names().items():
        print(module, *names)
