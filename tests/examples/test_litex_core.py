"""The LiteX module, without LiteX: it compiles, and names the ports that a Wishbone build has."""

import ast
import re
from pathlib import Path

from bus_builds import write_build

ROOT = Path(__file__).parents[2]


def test_module_connects_the_wrapper(tmp_path: Path) -> None:
    write_build(tmp_path, "wishbone")
    head = re.search(r"^module dut_wishbone\((.*?)\);", (tmp_path / "rtl" / "dut.v").read_text(), re.M | re.S)
    assert head is not None
    tree = ast.parse((ROOT / "examples" / "litex_core.py").read_text())
    (instance,) = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Instance"
    ]
    connected = {keyword.arg[2:] for keyword in instance.keywords if keyword.arg}
    # Classic masters leave stall open.
    assert connected == set(re.findall(r"\w+", head[1])) - {"wb_stall"}


def test_snippets_are_python() -> None:
    snippets = re.findall(r"^```py\n(.*?)^```", (ROOT / "docs" / "buses.md").read_text(), re.M | re.S)
    assert len(snippets) == 2
    for snippet in snippets:
        ast.parse(snippet)
