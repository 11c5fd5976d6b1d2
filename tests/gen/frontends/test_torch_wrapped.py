"""Modules that are wrapped, normed, looped or begun from learned states: read, or refused with a way out."""

import warnings
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from support.lazy import Lazy, nets, nn, torch
from support.refusals import refused
from support.same_network import without_names
from support.torch_forms import equals, in_form

from rtlstm.gen.frontends import ReadOptions, inspect_model, read_model

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.usefixtures("read_here"),
]
prune, scripted = Lazy("torch.nn.utils.prune"), Lazy("support.scripted_nets")


def plain_net():
    torch.manual_seed(1)
    return nets.headed(nn.LSTM(3, 4), 2).eval()


def loop(steps):
    """The cell once for each step, in the form that ``steps`` gives."""

    def call(net, x):
        h = c = torch.zeros(1, 4)
        found = []
        for x_t in steps(x):
            h, c = net.cell(x_t, (h, c))
            found.append(net.head(h))
        return torch.stack(found)

    return nets.Net(call, cell=nn.LSTMCell(3, 4), head=nn.Linear(4, 2)).eval()


def same(source, module, options=None) -> Any:
    x = torch.randn(5, 1, 3, generator=torch.Generator().manual_seed(2))
    return equals(source, module, x, options=options, atol=1e-6)


@pytest.mark.parametrize("wrap", ["compile", "nn.DataParallel"])
def test_wrappers_are_looked_through(wrap, tmp_path: Path) -> None:
    plain, wrap = plain_net(), attrgetter(wrap)(torch)
    assert same(wrap(plain), plain).report.source == "Net" and inspect_model(wrap(plain)).refusal == ""
    torch.save(wrap(plain).state_dict(), tmp_path / "net.pt")
    same(tmp_path / "net.pt", plain)


@pytest.mark.parametrize(
    "steps",
    [
        lambda x: x,
        lambda x: x.unbind(0),
        lambda x: (x[t] for t in range(x.shape[0])),
        lambda x: (x[t] for t in range(5)),
    ],
    ids=["tensor", "unbind", "shape", "number"],
)
def test_cell_in_a_loop_is_read_also_traced(steps, tmp_path: Path) -> None:
    module = loop(steps)
    same(module, module)
    same(in_form("trace", module, (torch.zeros(5, 1, 3),), tmp_path), module)


def test_cell_in_a_loop_that_is_none_is_refused_with_a_way_that_works(tmp_path: Path) -> None:
    """Every other step is no loop over the steps."""
    module = loop(lambda x: (x[t] for t in range(0, 6, 2)))
    refused(module, r"the cell 'cell' is called in a loop over the steps.*state_dict.*lstm='cell'")
    module = loop(lambda x: x)
    torch.save(module.state_dict(), tmp_path / "net.pt")
    same(tmp_path / "net.pt", module, ReadOptions(lstm="cell", dense=("head",)))


def test_scripted_loop_is_read_as_the_module(tmp_path: Path) -> None:
    module = scripted.Loop().eval()
    found = read_model(in_form("script", module, (), tmp_path)).network
    assert without_names(found) == without_names(read_model(module).network)


NORMS = {
    "weight_norm": "remove_weight_norm",
    "spectral_norm": "remove_spectral_norm",
    "parametrizations.weight_norm": "parametrize.remove_parametrizations",
    "parametrizations.spectral_norm": "parametrize.remove_parametrizations",
}
"""Functions of torch.nn.utils, and how each is undone."""


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("part", "name"), [("lstm", "weight_hh_l0"), ("head", "weight")])
def test_normed_weights(norm, part: str, name: str, tmp_path: Path) -> None:
    module = plain_net()
    with warnings.catch_warnings(action="ignore"):
        attrgetter(norm)(nn.utils)(getattr(module, part), name)
    if norm == "spectral_norm":
        refused(module, "forward hooks.*those of spectral norm with .*remove_spectral_norm")
    else:
        # The module computes its weights; so they are read, as they are now.
        for key, tensor in module.named_parameters():
            tensor.data *= 1.5 if key.endswith(("_g", "original0")) else 1
        same(module, module)
    torch.save(module.state_dict(), tmp_path / "net.pt")
    wanted = (
        rf"must hold the weight '{part}.{name}' itself.* norm.*torch.nn.utils.{NORMS[norm]}\(module, name\)"
    )
    for dense in (None, ("head",)):
        refused(tmp_path / "net.pt", wanted, ReadOptions(dense=dense))
    if part == "head":
        # What is not read may be in parts.
        assert len(read_model(tmp_path / "net.pt", ReadOptions(dense=())).network.layers) == 1


def pruned(part: str, name: str) -> Any:
    """A module whose weight has changed since its last forward."""
    module = plain_net()
    prune.l1_unstructured(getattr(module, part), name, amount=0.5)
    with torch.no_grad():
        getattr(getattr(module, part), f"{name}_orig").mul_(3)
    return module


@pytest.mark.parametrize(
    ("part", "name"), [("lstm", "weight_hh_l0"), ("lstm", "bias_ih_l0"), ("head", "weight")]
)
def test_pruned_weights_are_read(part: str, name: str, tmp_path: Path) -> None:
    """Those of the module's next forward; also of a state dict, and if pruned twice."""
    module = pruned(part, name)
    before = same(module, module).network
    prune.random_unstructured(getattr(module, part), name, amount=0.3)
    assert same(module, module).network.model_dump_json() != before.model_dump_json()
    torch.save(module.state_dict(), tmp_path / "net.pt")
    same(tmp_path / "net.pt", module)


@pytest.mark.parametrize("form", ["trace", "exported"])
@pytest.mark.parametrize(("part", "name"), [("lstm", "weight_hh_l0"), ("head", "weight")])
def test_pruning_in_a_graph_is_computed(part: str, name: str, form: str, tmp_path: Path) -> None:
    module, x = pruned(part, name), torch.zeros(5, 1, 3)
    path = in_form(form, module, (x,), tmp_path)
    if (form, part) == ("trace", "lstm"):
        refused(path, r"torch.nn.utils.prune.remove\(module, name\)")
    else:
        same(path, module)
    prune.remove(getattr(module, part), name)
    same(in_form(form, module, (x,), tmp_path), module)


@pytest.mark.parametrize("kinds", ["LSTM Linear", "LSTM", "Linear"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_dynamic_quantisation_is_named(kinds: str, nested: bool, tmp_path: Path) -> None:
    """The way out is the float model's state dict."""
    plain = plain_net()
    module = torch.ao.quantization.quantize_dynamic(
        plain, {getattr(nn, kind) for kind in kinds.split()}, dtype=torch.qint8
    )
    wanted = "packed by torch.ao.quantization, as quantize_dynamic does; give the model.*rtlstm quantises by"
    refused(module, f"must be a module of torch.nn, but has weights {wanted}")

    def write(module) -> Path:
        state = module.state_dict()
        torch.save({"model": state, "epoch": 3} if nested else state, tmp_path / "net.pt")
        return tmp_path / "net.pt"

    path = write(module)
    refused(path, wanted)
    if "LSTM" not in kinds:
        assert len(read_model(path, ReadOptions(dense=())).network.layers) == 1  # It is not needed.
    same(write(plain), plain)
