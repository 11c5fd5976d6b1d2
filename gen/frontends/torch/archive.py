"""TorchScript archives, made safe to load: none of the file's own code runs.

``torch.jit.load`` runs a class's ``__setstate__``, evaluates default arguments, and lets classes of C++
restore themselves; operators such as ``torch.from_file`` then overwrite files. All three are refused here,
before anything is loaded. The checked members are written to a new archive, which is then loaded, because two
readers may see different members. PyTorch ignores the case of members' names, so only names that it writes
are taken.
"""

import ast
import io
import pickletools
import re
import zipfile
from typing import BinaryIO

from rtlstm.spec.archives import open_archive, read_member
from rtlstm.spec.budget import MAX_ELEMENTS
from rtlstm.spec.errors import ModelError

_RUNS = b"__setstate__"
_NATIVE = "__torch__.torch.classes."
_LOADED = re.compile(
    r"(?:data|constants)\.pkl|(?:data|constants)/[0-9]+|code/[\w./]+\.py"
    r"|version|\.data/version|byteorder|\.format_version|\.storage_alignment",
    re.ASCII,
)
_NOT_NEEDED = re.compile(
    r"code/[\w./]+\.debug_pkl|traced_inputs\.pkl|traced_inputs/[0-9]+|bytecode\.pkl"
    r"|mobile_debug_handles\.pkl|\.data/serialization_id|extra/.*",
    re.ASCII | re.DOTALL,
)
"""Members that are not loaded: sources of the code, inputs of a trace, the mobile format, extra files."""


def checked_archive(file: BinaryIO) -> io.BytesIO:
    """Copy an archive, member by member.

    Raises
    ------
    ModelError
        If loading it would run code of its own, or it has members that PyTorch does not write.
    DamagedArchiveError
        If it is damaged, or has more than the budget of elements.
    """
    copy, left = io.BytesIO(), MAX_ELEMENTS * 8
    with open_archive(file) as source, zipfile.ZipFile(copy, "w") as target:
        for name in _loaded(source.namelist()):
            data = read_member(source, name, left)
            left -= len(data)
            _check(name, data)
            target.writestr(name, data)
    copy.seek(0)
    return copy


def _loaded(names: list[str]) -> list[str]:
    """The members to load; all are in the folder of the first."""
    loaded, folder = [], names[0].partition("/")[0] if names else ""
    for name in names:
        if name.endswith("/"):  # a folder, of which PyTorch writes none
            continue
        first, _, member = name.partition("/")
        if first == folder and _LOADED.fullmatch(member):
            loaded.append(name)
        elif first != folder or not _NOT_NEEDED.fullmatch(member):
            raise ModelError(
                f"must have only members that torch.jit.save writes, but has {name!r}; save the model again"
            )
    if len({name.casefold() for name in loaded}) < len(loaded):
        raise ModelError(
            "must have members whose names differ by more than upper and lower case, since PyTorch does not "
            "tell them apart; rename the model's classes and files, and save it again"
        )
    return loaded


def _check(name: str, data: bytes) -> None:
    if _RUNS in data:
        raise ModelError(
            f"must have no {_RUNS.decode()}, but {name!r} has: code of a file that runs when it is loaded is "
            "not trusted; remove it, or give the torch.nn.Module itself in Python, or its state_dict()"
        )
    if name.endswith(".pkl"):
        for operation, argument, _ in pickletools.genops(data):
            # "module name", of which either may have the dots
            if operation.name == "GLOBAL" and f"{argument}.".replace(" ", ".").startswith(_NATIVE):
                raise ModelError(
                    f"must have no objects of C++ classes, but {name!r} has one of {argument!r}, as "
                    "quantised modules do; give the model before it was quantised: rtlstm does that itself"
                )
    elif name.endswith(".py"):
        _check_source(name, data)


# Source: loading evaluates the default of every parameter and every value in a class


_TEXT = frozenset(b"\n" + bytes(range(32, 127)))
"""What torch writes. Of other characters, such as a carriage return, Python and TorchScript disagree where a
comment ends, so that one may read code where the other reads a string."""
_NUMBERS = ("inf", "nan", "infj", "nanj")
_INSTEAD = "give the torch.nn.Module itself in Python, or its state_dict()"


def _check_source(name: str, data: bytes) -> None:
    """Check that to load this source evaluates nothing but literals.

    Raises
    ------
    ModelError
        If it does, or cannot be parsed.
    """
    if not _TEXT.issuperset(data):
        raise ModelError(
            f"must be a TorchScript file with code in printable ASCII, as PyTorch writes, but {name!r} has "
            f"other characters; {_INSTEAD}"
        )
    try:
        tree = ast.parse(data.decode("ascii"))
        nodes = list(ast.walk(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ModelError(
            f"must be a TorchScript file with code that parses, but {name!r} has not ({error}); {_INSTEAD}"
        ) from None
    _check_statements(name, tree.body)
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            _check_statements(name, node.body)
        elif isinstance(node, ast.arguments):
            for default in (*node.defaults, *filter(None, node.kw_defaults)):
                if not _is_literal(default):
                    raise _refusal(name, "a default argument", default)


def _check_statements(name: str, body: list[ast.stmt]) -> None:
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.ClassDef() | ast.Import() | ast.Pass():
                pass
            case ast.Expr(value=value) | ast.AnnAssign(value=value) if value is None or _is_literal(value):
                pass
            case ast.Assign(targets=[ast.Name()], value=value) if _is_literal(value):
                pass
            case ast.Assign(targets=[ast.Subscript(value=ast.Name("__annotations__"))], value=value) if (
                _is_type(value)
            ):
                pass
            case _:
                raise _refusal(name, "a statement outside functions", statement)


def _is_literal(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name in _NUMBERS
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _is_literal(operand)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return all(map(_is_literal, items))
        case ast.Dict(keys=keys, values=values):
            return all(key is not None and _is_literal(key) for key in keys) and all(map(_is_literal, values))
        case ast.Attribute(value=ast.Name("CONSTANTS")):
            return True
        case ast.Call(func=ast.Name("annotate"), args=[kind, value], keywords=[]):
            return _is_type(kind) and _is_literal(value)
        case ast.Call(func=ast.Attribute(ast.Name("torch"), "device"), args=[ast.Constant()], keywords=[]):
            return True
    return False


def _is_type(node: ast.expr) -> bool:
    """Whether it is a type, which is looked up and not evaluated."""
    parts = (ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.Constant, ast.expr_context)
    return all(isinstance(part, parts) for part in ast.walk(node))


def _refusal(name: str, what: str, node: ast.expr | ast.stmt) -> ModelError:
    text = ast.unparse(node).splitlines()[0][:60]
    return ModelError(
        f"must have only literals outside the bodies of functions, but {name!r} has {what} {text!r}: code of "
        f"a file that runs when it is loaded is not trusted; {_INSTEAD}"
    )
