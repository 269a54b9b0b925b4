"""What scripts/release.py packs, by the part of it that needs no compiler: sdist and pure wheel."""

from __future__ import annotations

import re
import tarfile
import time
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest
import yaml
from scripts import release

KERNEL = "jetspark/wire/_kernel.abi3.so"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the pure wheel of the last commit."""
    out = tmp_path_factory.mktemp("dist")
    sdist = release.build_sdist("HEAD", out)
    return sdist, release.build_wheel(sdist, out, None)


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.full
def test_the_pure_wheel_has_every_module_and_nothing_else(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    with tarfile.open(sdist) as files:
        paths = [name.partition("/src/")[2] for name in files.getnames()]
    modules = {path for path in paths if path.endswith((".py", ".pyi", ".typed", ".html"))}
    assert "jetspark/py.typed" in modules
    assert {name for name in names(wheel) if ".dist-info/" not in name} == modules


def test_files_tell_of_the_commit_s_time_and_of_no_builder(built: tuple[Path, Path]) -> None:
    """scripts/release.py --twice builds all again and compares, byte for byte."""
    sdist, wheel = built
    seconds = release.commit_time("HEAD")
    with tarfile.open(sdist) as files:
        about = {(f.mtime, f.uid, f.gid, f.uname, f.gname) for f in files.getmembers()}
    assert about == {(seconds, 0, 0, "", "")}
    assert sdist.read_bytes()[4:8] == seconds.to_bytes(4, "little")
    with zipfile.ZipFile(wheel) as archive:
        assert {one.date_time for one in archive.infolist()} == {
            (*time.gmtime(seconds - seconds % 2)[:6],)
        }


def test_what_a_package_index_shows_links_to_no_other_file(built: tuple[Path, Path]) -> None:
    (metadata,) = (name for name in names(built[1]) if name.endswith("/METADATA"))
    with zipfile.ZipFile(built[1]) as archive, archive.open(metadata) as file:
        described = BytesParser().parse(file)
    assert described["Description-Content-Type"] == "text/markdown"
    text = described.get_payload(decode=True)
    assert isinstance(text, bytes)
    assert text.startswith(b"# jetspark")
    targets = re.findall(rb"\]\(([^)]*)\)|\b(?:href|src)=\"?([^\s>]*)|^\[[^]]+\]: (.*)", text, re.M)
    assert [t for t in targets if not b"".join(t).startswith(b"https://")] == []


def wheel_of(folder: Path, tag: str, *files: str) -> Path:
    wheel = folder / f"jetspark-0.1.0-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("jetspark/py.typed", "jetspark/errors.py", *files):
            archive.writestr(name, "")
    return wheel


def test_a_wheel_for_a_platform_has_the_kernel_and_the_pure_one_has_not(tmp_path: Path) -> None:
    platform = "musllinux_1_2_aarch64"
    release.check_wheel(wheel_of(tmp_path, f"cp311-abi3-{platform}", KERNEL), platform)
    with pytest.raises(release.ReleaseError, match="lacks"):
        release.check_wheel(wheel_of(tmp_path, f"cp311-abi3-{platform}"), platform)
    release.check_wheel(wheel_of(tmp_path, "py3-none-any"), None)
    with pytest.raises(release.ReleaseError, match="has jetspark/wire/_kernel"):
        release.check_wheel(wheel_of(tmp_path, "py3-none-any", KERNEL), None)


@pytest.mark.parametrize("extra", ["tests/test_acl.py", "jetspark/wire/_kernel.c", "notes.py"])
def test_a_wheel_with_anything_else_is_refused(tmp_path: Path, extra: str) -> None:
    with pytest.raises(release.ReleaseError, match=extra):
        release.check_wheel(wheel_of(tmp_path, "py3-none-any", extra), None)


def test_a_wheel_for_the_building_machine_is_refused(tmp_path: Path) -> None:
    wheel = wheel_of(tmp_path, "cp311-abi3-linux_x86_64", KERNEL)
    with pytest.raises(release.ReleaseError, match="is not tagged"):
        release.check_wheel(wheel, "manylinux_2_17_x86_64")


def test_only_the_job_that_publishes_gets_a_token_and_it_waits_for_all_others() -> None:
    workflow = Path(__file__).parents[1] / ".github" / "workflows" / "release.yml"
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"]
    assert [name for name, job in jobs.items() if "id-token" in job["permissions"]] == ["publish"]
    assert {*jobs["publish"]["needs"]} == jobs.keys() - {"publish"}


def test_the_workflow_names_actions_by_commits() -> None:
    """Somebody could move a tag, and the workflow may publish."""
    file = Path(__file__).parents[1] / ".github" / "workflows" / "release.yml"
    workflow = file.read_text("utf-8")
    used = re.findall(r"uses: (\S+)(.*)", workflow)
    assert len(used) > 5
    for action, rest in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r"  # v\d+(\.\d+){2}", rest), rest
