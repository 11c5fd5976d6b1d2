"""Files are written whole or not at all, and only where a file may be written."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from rtlstm.spec import files
from rtlstm.spec.errors import InputError
from rtlstm.spec.files import as_path, check_writable, copy_file, open_file, read_file, write_file

WRITE = "import sys; from rtlstm.spec.files import write_file; write_file(sys.argv[1], 'abc\\n')"


def devices(folder: Path):
    """Character devices that are nobody else's: a terminal; as root, a null and a full device."""
    main, terminal = os.openpty()
    found = [Path(os.ttyname(terminal))]
    for name, minor in (("null", 3), ("full", 7)):
        node = folder / name
        try:
            os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
            os.close(os.open(node, os.O_WRONLY))
        except OSError:
            node.unlink(missing_ok=True)
        else:
            found.append(node)
    return found, (main, terminal)


def test_new_and_old_file(tmp_path: Path):
    path = tmp_path / "a.txt"
    write_file(path, "one\r\n")
    assert path.read_bytes() == b"one\r\n"
    path.chmod(0o640)
    write_file(str(path), b"two")
    assert path.read_bytes() == b"two" and stat.S_IMODE(path.stat().st_mode) == 0o640
    copy_file(path, tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"two"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.txt", "b"]


def test_failure_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "a"
    path.write_text("old")

    def fail(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(path, fail)

    def full(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="a cannot be written: No space left on device; name another file"):
        write_file(path, full)

    def short(file):
        raise OSError("16 requested and 4 written")

    with pytest.raises(InputError, match="the disk may be full .16 requested and 4 written.; name"):
        write_file(path, short)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_what_killed_processes_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """But not what another one writes, even if it is seen before its lock: then another name is taken."""
    path, left = tmp_path / "a", tmp_path / ".rtlstm-8-0.new"
    left.write_text("half")
    names: list[str] = []

    def write(file):
        names.append(file.name)
        write_file(tmp_path / "b", "b")
        assert not left.exists() and Path(file.name).exists()
        file.write(b"new")

    lock, seen = files.locked, []

    def too_late(work: Path, **options: bool):
        if options and not seen:
            seen.append(str(work))
            with lock(work) as alone:
                assert alone
                work.unlink()
        return lock(work, **options)

    monkeypatch.setattr(files, "locked", too_late)
    write_file(path, write)
    assert path.read_text() == "new" and names != seen
    assert {each.name for each in tmp_path.iterdir()} == {"a", "b"}


def test_links_stay(tmp_path: Path):
    """A link is kept, and what it leads to is written: a file, one not yet there, another link."""
    (tmp_path / "far").mkdir()
    target, there, link = tmp_path / "far/target", tmp_path / "far/there", tmp_path / "link"
    target.write_text("old")
    there.symlink_to("target")
    link.symlink_to(there)
    write_file(link, "new")
    assert link.is_symlink() and there.is_symlink() and not target.is_symlink()
    assert target.read_text() == "new"
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "far/later")
    check_writable(dangling)
    write_file(dangling, "new")
    assert dangling.is_symlink() and (tmp_path / "far/later").read_text() == "new"
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for function in (check_writable, lambda path: write_file(path, "")):
        with pytest.raises(InputError, match="loop cannot be written"):
            function(loop)


def test_devices_stay(tmp_path: Path):
    """A device is written to; it is never replaced, and says itself when it is full."""
    found, opened = devices(tmp_path)
    link = tmp_path / "link"
    try:
        for device in found:
            before = device.stat()
            for path in (device, link):
                if path is link:
                    link.symlink_to(device)
                check_writable(path)
                if device.name == "full":
                    with pytest.raises(InputError, match="cannot be written: No space left on device"):
                        write_file(path, "abc\n")
                else:
                    write_file(path, "abc\n")
            after = device.stat()
            assert stat.S_ISCHR(after.st_mode) and (before.st_ino, before.st_rdev) == (
                after.st_ino,
                after.st_rdev,
            )
            link.unlink()
        shown = b""
        while len(shown) < 10:
            shown += os.read(opened[0], 100)
        assert shown == b"abc\r\nabc\r\n"
    finally:
        for descriptor in opened:
            os.close(descriptor)


def test_pipe_gets_all_bytes(tmp_path: Path):
    """Into a pipe goes what would be in the file, from writers that want to know their position, too."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    array = np.arange(50_000)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    check_writable(pipe)
    write_file(pipe, lambda file: np.savez(file, x=array))
    reader.join()
    assert pipe.is_fifo()
    (tmp_path / "x.npz").write_bytes(got[0])
    with np.load(tmp_path / "x.npz") as loaded:
        assert np.array_equal(loaded["x"], array)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output(tmp_path: Path, name: str):
    """To standard output, be it a pipe or a file that the shell has opened, behind what is there."""
    program = f"print('first', flush=False); {WRITE}; print('last')"
    piped = subprocess.run([sys.executable, "-c", program, name], capture_output=True, check=True)
    assert piped.stdout == b"first\nabc\nlast\n"
    path = tmp_path / "out"
    with path.open("wb") as out:
        subprocess.run([sys.executable, "-c", program, name], stdout=out, check=True)
    assert path.read_bytes() == b"first\nabc\nlast\n"
    left, right = socket.socketpair()
    with left, right:
        subprocess.run([sys.executable, "-c", program, name], stdout=left, check=True)
        assert right.recv(100) == b"first\nabc\nlast\n"


def test_refused(tmp_path: Path):
    """By name, before the work and when it is done."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    (tmp_path / "file").write_text("")
    cases = {
        tmp_path: "it is a folder",
        tmp_path / "socket": "it is a socket",
        tmp_path / "none" / "x": "its folder does not exist",
        tmp_path / "file" / "x": "Not a directory",
        tmp_path / ("n" * 300): "File name too long",
    }
    with suppress(OSError):
        # A block device that nobody has, where root may make one.
        os.mknod(tmp_path / "block", 0o666 | stat.S_IFBLK, os.makedev(7, 4095))
        cases[tmp_path / "block"] = "it is a block device"
    with listener:
        for path, reason in cases.items():
            for function in (check_writable, lambda path: write_file(path, "x")):
                with pytest.raises(InputError, match=reason):
                    function(path)
    if Path("/proc/self").exists():
        # The folder is there, but nobody can make a file in it.
        with pytest.raises(InputError, match=r"takes no new files|Permission denied"):
            write_file("/proc/x", "x")
    for wrong in (5, None, b"bytes", "nul\0l", ["a"]):
        with pytest.raises(InputError, match="the file to write must be a path"):
            write_file(wrong, "x")
        with pytest.raises(InputError, match="the build must be a path"):
            as_path("the build", wrong)
    assert {path.name for path in tmp_path.iterdir()} <= {"file", "socket", "block"}


def test_read_only():
    """What a user may not write is refused, though its folder would let them replace it."""
    program = (
        "import os, sys\n"
        "from rtlstm.spec.files import check_writable, write_file\n"
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "for function in (check_writable, lambda path: write_file(path, 'new')):\n"
        "    for path in sys.argv[1:]:\n"
        "        try: function(path)\n"
        "        except ValueError as error: print(error)\n"
    )
    # Not in pytest's folder, into which another user may not look.
    with tempfile.TemporaryDirectory() as temporary:
        path, folder = Path(temporary, "file"), Path(temporary, "folder")
        path.write_text("old")
        path.chmod(0o444)
        folder.mkdir()
        folder.chmod(0o555)
        Path(temporary).chmod(0o777)
        command = [sys.executable, "-c", program, path, folder / "x"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert path.read_text() == "old" and not list(folder.iterdir())
    lines = done.stdout.splitlines()
    assert len(lines) == 4 and all("cannot be written" in line for line in lines), done.stdout
    assert "read-only for this user" in lines[0] and "read-only for this user" in lines[2]


def test_only_regular_files_are_read(tmp_path: Path):
    """Links to them, too; a folder and an absent file are Python's own errors."""
    path, link, pipe = tmp_path / "a", tmp_path / "link", tmp_path / "pipe"
    path.write_bytes(b"abc")
    link.symlink_to(path)
    assert read_file(link) == b"abc"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(tmp_path / "socket"))
        others = {pipe: "pipe", Path("/dev/zero"): "character device", tmp_path / "socket": "socket"}
        for other, kind in others.items():
            with pytest.raises(OSError, match=f"it is a {kind}, not a regular file; copy its content into"):
                open_file(other)
    with pytest.raises(IsADirectoryError):
        open_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "none")
