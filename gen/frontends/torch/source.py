"""Source in TorchScript archives: loading it may evaluate literals, and nothing else.

``torch.jit.load`` evaluates the default of every parameter, and every value in a class.
"""

import ast

from rtlstm.spec.errors import ModelError

__all__ = ["check_source"]

_TEXT = frozenset(b"\n" + bytes(range(32, 127)))
"""What torch writes. Of other characters, such as a carriage return, Python and TorchScript disagree where a
comment ends, so that one may read code where the other reads a string."""
_NUMBERS = ("inf", "nan", "infj", "nanj")
_INSTEAD = "give the torch.nn.Module itself in Python, or its state_dict()"


def check_source(name: str, data: bytes) -> None:
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
