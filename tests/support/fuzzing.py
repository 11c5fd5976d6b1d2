"""Seeded damage to files: of bytes, of archives' members, of JSON trees, of ONNX messages.

As a program, it reads damaged files of a foreign kind, each in a fork with the limits of the child process:
``python fuzzing.py KIND SEED COUNT FILE...`` prints how the readings ended.
"""

import copy
import io
import json
import os
import random
import sys
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rtlstm.spec.errors import RtlstmError

ODD: tuple[Any, ...] = (None, True, -1, 0, 1, 3, 2**31, 2**63, 1e308, 0.5, "", "x", "\x1b[0m", "9" * 5000, [])


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """Change, cut, repeat or insert some bytes."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(changed)) if changed else 0
        kind = rng.randrange(6)
        if kind == 0:
            changed[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            changed[at : at + 1] = rng.choice((b"\0", b"\xff", b"\x7f", b"\x80"))
        elif kind == 2:
            del changed[at : at + rng.choice((1, 4, 64))]
        elif kind == 3:
            changed[at:at] = changed[at : at + rng.choice((1, 8, 32))]
        elif kind == 4:
            changed[at : at + 8] = rng.choice((2**63, 2**31, 0, 2**64 - 1, 10**10)).to_bytes(8, "little")
        else:
            del changed[rng.randrange(len(changed) or 1) :]
    return bytes(changed)


def damage_tree(tree: Any, rng: random.Random) -> Any:
    """Change one to three values of a tree of dictionaries and lists."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(tree))
        if not places:
            return rng.choice(ODD)
        owner, key = rng.choice(places)
        kind = rng.randrange(5)
        if kind == 0:
            del owner[key]
        elif kind == 1:
            other, name = rng.choice(places)
            owner[key] = copy.deepcopy(other[name]) if name in other or isinstance(other, list) else None
        elif kind == 2 and isinstance(owner, list):
            owner.append(copy.deepcopy(owner[key]))
        else:
            owner[key] = copy.deepcopy(rng.choice(ODD))
    return tree


def _places(tree: Any) -> Iterable[tuple[Any, Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(items):
        yield tree, key
        yield from _places(value)


def damage_json(data: bytes, rng: random.Random) -> bytes:
    """Change the tree, or now and then the text."""
    if rng.random() < 0.1:
        return rng.choice((b"[" * 50_000, b'{"a":' * 50_000, damage_bytes(data, rng)))
    return json.dumps(damage_tree(json.loads(data), rng)).encode()


def damage_archive(data: bytes, rng: random.Random) -> bytes:
    """Change a member and write the archive anew, or change the archive's own bytes."""
    if rng.random() < 0.3:
        return damage_bytes(data, rng)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    at = rng.randrange(len(members))
    name, content = members[at]
    kind = rng.randrange(8)
    if kind == 0:
        del members[at]
    elif kind == 1:
        members[at] = (name, members[rng.randrange(len(members))][1])
    elif name.endswith(".json"):
        members[at] = (name, damage_json(content, rng))
    else:
        members[at] = (name, damage_bytes(content, rng))
    target, method = io.BytesIO(), rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return target.getvalue()


def damage_model(data: bytes, rng: random.Random) -> bytes:
    """Change an ONNX model's messages, or now and then its bytes."""
    import onnx

    if rng.random() < 0.2:
        return damage_bytes(data, rng)
    model = onnx.load_from_string(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        messages = list(_messages(model))
        message, field = rng.choice(messages)
        _damage_field(message, field, rng, [m for m, _ in messages])
    return bytes(model.SerializeToString())


def _messages(message: Any) -> Iterable[tuple[Any, Any]]:
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                yield from _messages(inner)


def _damage_field(message: Any, field: Any, rng: random.Random, others: list[Any]) -> None:
    value = getattr(message, field.name)
    if rng.random() < 0.2:
        message.ClearField(field.name)
    elif field.is_repeated and len(value) and rng.random() < 0.5:
        if rng.random() < 0.5:
            del value[rng.randrange(len(value))]
        elif field.message_type is not None:
            value.add().CopyFrom(rng.choice(list(value)))
        else:
            value.append(rng.choice(list(value)))
    elif field.message_type is not None:
        alike = [each for each in others if each.DESCRIPTOR is field.message_type]
        source = copy.deepcopy(rng.choice(alike)) if alike else None
        if source is not None:
            (value[rng.randrange(len(value))] if field.is_repeated else value).CopyFrom(source)
    else:
        names = [
            "",
            "x",
            "Relu",
            "Range",
            "If",
            "\x1b[0m",
            *(each.name for each in others if hasattr(each, "name")),
        ]
        number = rng.choice((0, 1, 2, 3, -1, 7, 2**31 - 1, 10**9))
        found = {
            str: rng.choice(names),
            bytes: rng.randbytes(4),
            float: rng.choice((0.0, 1e38, float("nan"))),
        }
        kind = type(value[0] if field.is_repeated else value)
        try:
            if field.is_repeated:
                value[rng.randrange(len(value))] = found.get(kind, number)
            else:
                setattr(message, field.name, found.get(kind, number))
        except (TypeError, ValueError):  # an enumeration, or too large for the field
            message.ClearField(field.name)


def count_outcomes(
    damage: Callable[[bytes, random.Random], bytes],
    tell: Callable[[bytes], str],
    files: list[bytes],
    seed: int,
    count: int,
) -> dict[str, int]:
    """How readings of damaged files ended; ``tell`` says it of one, as :func:`outcome` does."""
    found: Counter[str] = Counter()
    for number in range(count):
        rng = random.Random(f"{seed}.{number}")
        found[tell(damage(rng.choice(files), rng))] += 1
    return dict(found)


def outcome(read: Callable[[bytes], object], data: bytes) -> str:
    """How one reading ends: accepted, refused, or with what other exception, and where."""
    try:
        read(data)
    except RtlstmError:
        return "refused"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        ours = [each for each in traceback.extract_tb(error.__traceback__) if "rtlstm" in each.filename]
        last = ours[-1] if ours else place
        return f"{type(error).__name__}: {str(error)[:80]} at {Path(last.filename).name}:{last.lineno}"
    return "accepted"


# In a process of its own


def _fork(read: Callable[[bytes], object], data: bytes) -> str:
    """How a reading ends that may crash: in a fork, within the limits of the child process."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        from rtlstm.gen.frontends import limits

        limits.SECONDS = 2
        limits.keep_limits()
        os.write(send, outcome(read, data).encode()[:4000])
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as answer:
        text = answer.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    # A crash, a loop and a lack of memory are what the child process is for: one named error.
    return text if status == 0 else "ended by a limit or a crash"


def main() -> None:
    """See the module."""
    kind, seed, count, *files = sys.argv[1:]
    from rtlstm.gen.frontends import child
    from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder

    child.load(kind)
    if kind == "torchscript":
        import torch

        from rtlstm.gen.frontends.torch.script import import_all

        import_all(torch)

    def read(data: bytes) -> None:
        child.read_foreign(io.BytesIO(data), kind, ReadOptions(), ReportBuilder("fuzz"))

    damage = damage_bytes if files[0].endswith(".h5") else damage_archive
    contents = [Path(file).read_bytes() for file in files]
    counts = count_outcomes(damage, lambda data: _fork(read, data), contents, int(seed), int(count))
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
