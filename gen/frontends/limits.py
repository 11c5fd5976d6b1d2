"""What a process that reads foreign files may use of the machine."""

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_NO_NEW_PRIVILEGES = 38
"""The option of prctl without which a process may not restrict itself."""

_CREATE_RULES, _ADD_RULE, _RESTRICT = 444, 445, 446
"""Landlock's system calls, on all processors."""
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""How many rights to files Landlock knows from a version on."""
_READ = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/dev/null", "/dev/urandom")
"""What Python and its packages read beside their own folders."""

_MACHINES = {
    "x86_64": (
        0xC000003E, 317, 56, (234, 302),
        {41, 57, 58, 59, 62, 101, 248, 250, 272, 298, 310, 311, 321, 322, 323, 129, 200, 297}
        | {90, 91, 92, 93, 94, 132, 188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280},
    ),
    "aarch64": (
        0xC00000B7, 277, 220, (131, 261),
        {97, 117, 129, 198, 217, 219, 221, 241, 270, 271, 280, 281, 282, 130, 138, 240}
        | {5, 6, 7, 14, 15, 16, 52, 53, 54, 55, 88},
    ),
}  # fmt: skip
"""Name for the kernel, numbers of seccomp and clone, of tgkill and prlimit64, which reach this process alone,
and of what is refused: socket, fork, vfork, execve, kill, ptrace, add_key, keyctl, unshare, perf_event_open,
process_vm_readv and -writev, bpf, execveat, userfaultfd, rt_sigqueueinfo, tkill, rt_tgsigqueueinfo; and the
kinds of chmod, chown, utime, setxattr and removexattr."""
_REFUSED = {424, 425, 434, 438, 452}
"""Numbers on all processors: pidfd_send_signal, io_uring_setup, pidfd_open, pidfd_getfd, fchmodat2."""
_CLONE3, _THREAD = 435, 0x10000
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""Instructions of a filter."""


def isolate() -> None:
    """Shut this process off for good; threads that run already may still read files."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0:
        _restrict_files(libc)
        _restrict_calls(libc)


def _restrict_files(libc: ctypes.CDLL) -> None:
    version = libc.syscall(_CREATE_RULES, None, 0, 1)
    if version < 1:
        return
    rights = max(count for least, count in _RIGHTS.items() if least <= version)
    handled = struct.pack("Q", (1 << rights) - 1)
    rules = libc.syscall(_CREATE_RULES, handled, len(handled), 0)
    if rules < 0:
        return
    for path in sorted(set(_readable())):
        with suppress(OSError):
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rights = _READ_FILE | (_READ_FOLDER if os.path.isdir(path) else 0)
            libc.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", rights, opened), 0)
            os.close(opened)
    libc.syscall(_RESTRICT, rules, 0)
    os.close(rules)


def _readable() -> Iterator[str]:
    yield from _READ
    yield from (sys.prefix, sys.base_prefix)
    for module in list(sys.modules.values()):
        if file := getattr(module, "__file__", None):
            # A package may consist of links to files that are elsewhere.
            yield os.path.dirname(os.path.realpath(file))


def _restrict_calls(libc: ctypes.CDLL) -> None:
    known = _MACHINES.get(platform.machine())
    if known is None:
        return
    name, seccomp, clone, alone, refused = known
    numbers = sorted(refused | _REFUSED)
    # Each instruction: code, how many to skip if true and if false, value. Jumps lead to an end.
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, name), (_RETURN, 0, 0, _ERROR | _EPERM), (_LOAD, 0, 0, 0)]
    # Calls of the x32 kind have numbers of their own.
    tests = [(_AT_LEAST, 0x40000000, "refuse"), *((_EQUAL, number, "refuse") for number in numbers)]
    tests += [(_EQUAL, _CLONE3, "unknown"), (_EQUAL, clone, "clone")]
    tests += [(_EQUAL, number, "alone") for number in alone]
    ends = [
        ("allow", (_RETURN, 0, 0, _ALLOW)),
        # Threads are made with clone where there is no clone3, whose flags no filter sees.
        ("clone", (_LOAD, 0, 0, 16)),
        ("", (_ANY_BIT, 0, 1, _THREAD)),
        ("", (_RETURN, 0, 0, _ALLOW)),
        ("refuse", (_RETURN, 0, 0, _ERROR | _EPERM)),
        ("unknown", (_RETURN, 0, 0, _ERROR | _ENOSYS)),
        # The first argument names the process: 0 is this one, too.
        ("alone", (_LOAD, 0, 0, 16)),
        ("", (_EQUAL, 2, 0, 0)),
        ("", (_EQUAL, 1, 0, os.getpid())),
        ("", (_RETURN, 0, 0, _ERROR | _EPERM)),
        ("", (_RETURN, 0, 0, _ALLOW)),
    ]
    ends_at = {label: len(tests) + at for at, (label, _) in enumerate(ends)}
    program += [(code, ends_at[to] - at - 1, 0, value) for at, (code, value, to) in enumerate(tests)]
    program += [instruction for _, instruction in ends]
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
    filters = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(text))
    # Of all threads, 1; where one has another filter already, of this thread.
    if libc.syscall(seccomp, 1, 1, filters) != 0:
        libc.syscall(seccomp, 1, 0, filters)


# Windows has no such limits; there, only the parent's time limit holds.
if sys.platform != "win32":
    import resource

SECONDS = 60
"""Seconds of processor time."""
MEMORY = 4 * 2**30
"""Bytes of address space beyond what the libraries have taken when they were loaded."""
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),  # each takes memory
    "HDF5_PLUGIN_PRELOAD": "::",  # no filters from shared libraries
}
_limited = False


def keep_limits() -> None:
    """From now on, end at :data:`SECONDS`, take at most :data:`MEMORY`, write no file and leave no dump."""
    global _limited
    _limited = True
    if sys.platform != "win32":
        _lower(resource.RLIMIT_CPU, SECONDS)
        _lower(resource.RLIMIT_AS, _taken() + MEMORY)
        _lower(resource.RLIMIT_FSIZE, 0)
        _lower(resource.RLIMIT_CORE, 0)


def _taken() -> int:
    """Bytes of address space that this process has, as Linux tells."""
    with suppress(OSError):
        pages = Path("/proc/self/statm").read_text().split()[0]
        return int(pages) * resource.getpagesize()
    return 0


def _lower(kind: int, most: int) -> None:
    soft, hard = resource.getrlimit(kind)
    least = min(limit for limit in (most, soft, hard) if limit != resource.RLIM_INFINITY)
    with suppress(OSError, ValueError):  # macOS refuses some
        resource.setrlimit(kind, (least, hard if kind == resource.RLIMIT_CPU else least))


def keeps_files_shut() -> bool:
    """Whether :func:`no_files` can do what it says on this system."""
    return sys.platform != "win32"


@contextmanager
def no_files() -> Iterator[None]:
    """Let nothing be opened inside, neither files nor connections, if this process keeps limits.

    Whatever is imported inside has to be loaded before.
    """
    if not _limited or not keeps_files_shut():
        yield
        return
    before: tuple[Any, Any] = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
