"""safetensors files: names by PyTorch's convention, and what must be said by options."""

import zipfile

import numpy as np
import pytest
import safetensors.numpy
from support.closeness import close
from support.refusals import refused

from rtlstm.gen.frontends import ReadOptions, read_model
from rtlstm.sim.reference import run_float
from rtlstm.spec.errors import ModelError
from rtlstm.spec.files import MAX_ELEMENTS
from rtlstm.spec.network import Dense, Lstm, Network

I, H, O = 5, 6, 3  # noqa: E741
RNG = np.random.default_rng(2)


def rand(*shape):
    return RNG.normal(size=shape, scale=0.5).astype(np.float32)


def lstm(prefix="lstm.", layers=1, suffix="_l{}", bias=True, gates=4, inputs=I):
    tensors = {}
    for k in range(layers):
        end = suffix.format(k)
        tensors[f"{prefix}weight_ih{end}"] = rand(gates * H, inputs if k == 0 else H)
        tensors[f"{prefix}weight_hh{end}"] = rand(gates * H, H)
        if bias:
            tensors[f"{prefix}bias_ih{end}"] = rand(gates * H)
            tensors[f"{prefix}bias_hh{end}"] = rand(gates * H)
    return tensors


def linear(name="linear", outputs=O, inputs=H):
    return {f"{name}.weight": rand(outputs, inputs), f"{name}.bias": rand(outputs)}


@pytest.fixture
def read(tmp_path):
    def call(tensors, **options):
        path = tmp_path / "net.safetensors"
        safetensors.numpy.save_file(tensors, path)
        return read_model(path, ReadOptions(**options))

    return call


def expected(tensors, prefix="lstm.", end="_l0", dense=()):
    t = {key: value.astype(float) for key, value in tensors.items()}
    layer = Lstm(
        w_ih=t[f"{prefix}weight_ih{end}"],
        w_hh=t[f"{prefix}weight_hh{end}"],
        bias=t[f"{prefix}bias_ih{end}"] + t[f"{prefix}bias_hh{end}"],
    )
    return Network(layers=(layer, *dense))


@pytest.mark.parametrize("prefix", ["lstm.", "", "deep.inside."])
def test_one_layer_and_one_dense(read, prefix):
    tensors = lstm(prefix) | linear()
    result, x = read(tensors), rand(4, 2, I)
    dense = Dense(weight=tensors["linear.weight"], bias=tensors["linear.bias"])
    close(run_float(result.network, x).y, run_float(expected(tensors, prefix, dense=[dense]), x).y, 1e-12)
    assert any("names no activations" in note and "linear:sigmoid" in note for note in result.report.notes)


def test_cell_with_conv_head_as_in_silero(read):
    tensors = lstm("lstm_cell.", suffix="") | {"conv1.weight": rand(4, I, 3), "conv1.bias": rand(4)}
    tensors |= {"final.weight": rand(1, H, 1), "final.bias": rand(1)}
    with pytest.raises(ModelError, match=r"conv1.weight.*name the dense layers in order with `dense`"):
        read(tensors)
    result, x = read(tensors, lstm="lstm_cell", dense=("relu:final:sigmoid",)), rand(4, 1, I)
    head = Dense(
        weight=tensors["final.weight"][:, :, 0],
        bias=tensors["final.bias"],
        activation="sigmoid",
        input_relu=True,
    )
    close(run_float(result.network, x).y, run_float(expected(tensors, "lstm_cell.", "", [head]), x).y, 1e-12)
    assert sorted(entry.name for entry in result.report.outside) == ["conv1.bias", "conv1.weight"]


def test_stacked_layers_without_bias(read):
    result = read(lstm(layers=11, bias=False))
    assert [layer.name for layer in result.network.layers] == [f"lstm_l{k}" for k in range(11)]
    assert not np.any(result.network.layers[0].bias)


def test_several_modules_are_stacked_on_request(read):
    tensors = lstm("a.") | lstm("b.", inputs=H)
    with pytest.raises(ModelError, match="must hold one LSTM, but has 2: a, b; choose with `lstm`"):
        read(tensors)
    assert [layer.name for layer in read(tensors, lstm="a,b", dense=()).network.layers] == ["a", "b"]
    assert read(tensors, lstm="b", dense=()).network.inputs == H


def test_dense_in_the_given_order(read):
    tensors = lstm() | linear("z", 4) | linear("a", O, 4)
    with pytest.raises(ModelError, match="tensors beside the LSTM"):
        read(tensors)
    layers = read(tensors, dense=("z.weight:tanh", "a")).network.layers
    assert [(layer.name, layer.kind) for layer in layers] == [
        ("lstm", "lstm"),
        ("z", "dense"),
        ("a", "dense"),
    ]
    assert layers[1].activation == "tanh"
    with pytest.raises(ModelError, match="dense layer 'a' reads 4 values, but 'lstm' before it gives 6"):
        read(tensors, dense=("a", "z"))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LSTM", {"bidirectional": True, "num_layers": 2}),
        ("LSTM", {"proj_size": 4, "bidirectional": True}),
        ("GRU", {"num_layers": 2, "bias": False}),
        ("RNN", {"bidirectional": True}),
        ("GRUCell", {}),
        ("RNNCell", {}),
    ],
)
def test_names_of_torch_modules(read, kind, options):
    module = getattr(pytest.importorskip("torch").nn, kind)(I, H, **options)
    result = read({f"net.{name}": tensor.numpy() for name, tensor in module.state_dict().items()})
    network = read_model(module).network
    assert [layer.kind for layer in result.network.layers] == [layer.kind for layer in network.layers]
    x = rand(4, 2, I)
    np.testing.assert_array_equal(run_float(result.network, x).y, run_float(network, x).y)
    assert any("tanh is taken" in note for note in result.report.notes) == kind.startswith("RNN")


@pytest.mark.parametrize("both", [True, False])
def test_what_a_dense_layer_reads_of_both_directions_is_noted(read, both):
    module = pytest.importorskip("torch").nn.LSTM(I, H, bidirectional=both)
    tensors = {f"lstm.{name}": tensor.numpy() for name, tensor in module.state_dict().items()}
    notes = read(tensors | linear(inputs=2 * H if both else H)).report.notes
    assert any("is taken to read every step of 'lstm'" in note for note in notes) == both


def test_embedding_by_its_shape(read):
    table = rand(9, I)
    result = read(lstm() | linear() | {"words.weight": table})
    assert [layer.name for layer in result.network.layers] == ["lstm", "linear"]
    assert result.embeddings[0].name == "words"
    np.testing.assert_array_equal(result.embeddings[0]([[3, 8]]), table[[[3, 8]]])
    assert any("'words' is an embedding by its shape (9, 5)" in note for note in result.report.notes)
    # As wide as what a dense layer would read, too: it must be said.
    with pytest.raises(ModelError, match="tensors beside the LSTM"):
        read(lstm(inputs=H) | linear() | {"words.weight": rand(9, H)})


NORM = {f"norm.{part}": np.ones(H, np.float32) for part in ("weight", "bias")}
BATCH = {
    f"body.bn.{part}": np.ones(H, np.float32) for part in ("weight", "bias", "running_mean", "running_var")
}
BATCH |= {"body.bn.num_batches_tracked": np.ones((), np.int64)}


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        (NORM, "'norm' (bias, weight);"),
        (BATCH, "'body.bn' (bias, num_batches_tracked, running_mean, running_var, weight);"),
        (linear("other"), "'other' (bias, weight);"),
        ({"scale": rand(H)}, "'scale';"),
        (NORM | lstm("second.", inputs=H), "'second' (bias_hh_l0, bias_ih_l0, weight_hh_l0, weight_ih_l0);"),
    ],
)
@pytest.mark.parametrize("dense", [("linear",), ()])
def test_tensors_that_are_left_out_are_told(read, rest, told, dense):
    notes = read(lstm() | rest | (linear() if dense else {}), lstm="lstm", dense=dense).report.notes
    (note,) = [note for note in notes if note.startswith("left out, since no option names them: ")]
    assert told in note and "give the torch.nn.Module" in note


def test_nothing_left_out_is_not_told(read):
    assert not any("left out" in note for note in read(lstm() | linear()).report.notes)


@pytest.mark.usefixtures("read_here")
def test_entries_that_are_no_tensors_are_told(tmp_path):
    torch = pytest.importorskip("torch")
    state = {name: torch.tensor(value) for name, value in lstm().items()}
    torch.save(state | {"epoch": 3, "lstm._extra_state": {"a": 1}}, tmp_path / "net.pt")
    notes = read_model(tmp_path / "net.pt").report.notes
    assert "left out of the state dict, since they are no tensors: epoch, lstm._extra_state" in notes


def test_bfloat16(tmp_path):
    # Bits of 1.5 as bfloat16, written by hand: numpy has no such type.
    import json

    shapes = {"weight_ih_l0": [4, 1], "weight_hh_l0": [4, 1]}
    header, at = {}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 8]}
        at += 8
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + np.full(8, 0x3FC0, "<u2").tobytes()
    (tmp_path / "net.bin").write_bytes(data)
    assert (read_model(tmp_path / "net.bin").network.layers[0].w_ih == 1.5).all()


@pytest.mark.parametrize(
    ("tensors", "options", "words"),
    [
        (lstm(gates=2), {}, "must have 4 x 6 rows .an LSTM., 3 x 6 .a GRU. or 6 .a plain RNN., not 12"),
        (
            lstm() | {"lstm.weight_ih_l0_reverse": rand(24, I)},
            {},
            "LSTM layer 'lstm' must have weight_hh, but it is missing",
        ),
        (
            {f"{key}_reverse": value for key, value in lstm().items()},
            {},
            "must have a forward direction, but has only .*lstm.weight_ih_l0_reverse",
        ),
        (
            lstm() | {"lstm.weight_hr_l0": rand(2, H)},
            {},
            r"'lstm.weight_hr_l0' must have shape \(6, units\), not \(2, 6\)",
        ),
        (lstm(gates=3) | {"lstm.weight_hr_l0": rand(H, H)}, {}, "is a GRU by its shape, but only an LSTM"),
        ({"fc.weight": rand(2, 2)}, {}, "must hold an LSTM.*none among fc.weight"),
        (
            {key: value for key, value in lstm(layers=3).items() if "l1" not in key},
            {},
            "must have layers l0, l1, ... without gaps.*lstm.weight_ih_l2",
        ),
        (
            {key: value for key, value in lstm().items() if "bias_hh" not in key},
            {},
            "both biases or none, but has only 'lstm.bias_ih_l0'",
        ),
        (
            {key: value for key, value in lstm().items() if "weight_hh" not in key},
            {},
            "LSTM layer 'lstm' must have weight_hh, but it is missing",
        ),
        (lstm() | {"lstm.bias_ih_l0": rand(5)}, {}, r"'lstm.bias_ih_l0' must have shape \(24,\)"),
        (
            lstm() | {"lstm.weight_hh_l0": rand(24, 5)},
            {},
            r"'lstm.weight_ih_l0' must have 4 x 5 rows .* not 24: 'lstm.weight_hh_l0' has shape \(24, 5\)",
        ),
        (lstm() | {"lstm.bias_ih_l0": np.full(24, np.nan)}, {}, "'lstm.bias_ih_l0' must hold finite"),
        (
            lstm() | {"lstm.bias_ih_l0": np.ones(24, np.int32)},
            {},
            "'lstm.bias_ih_l0' must be one of float16.*I32",
        ),
        (lstm() | linear(), {"dense": ("linear:celu",)}, r"`dense` must be NAME.*not 'linear:celu'"),
        (lstm() | linear(), {"dense": ("liner",)}, "must have a tensor 'liner.weight'; there are linear"),
        (lstm(), {"dense": ("fc",)}, "'fc.weight'; there are none beside the LSTM's: leave out `dense`"),
        (lstm(), {"lstm": "gru"}, "there is no 'gru'; it has lstm"),
        (lstm(), {"output": "y"}, r"`output` is for models with a graph"),
    ],
)
def test_refused_by_name(read, tensors, options, words):
    with pytest.raises(ModelError, match=f"net.safetensors: .*{words}"):
        read(tensors, **options)


def test_damaged_file(tmp_path):
    path = tmp_path / "net.safetensors"
    safetensors.numpy.save_file(lstm(), path)
    path.write_bytes(path.read_bytes()[:-8])
    refused(path, "must be a safetensors file, but is damaged")


def test_layer_numbers_of_any_length(read):
    tensors = {f"lstm.weight_ih_l{'7' * 5000}": rand(4, 1)}
    with pytest.raises(ModelError, match="must hold an LSTM"):
        read(tensors)


@pytest.mark.usefixtures("read_here")
def test_elements_that_strides_repeat_are_counted(tmp_path):
    """A file of 2 KB that declares 10^8 elements, and one that holds more than the budget has."""
    torch = pytest.importorskip("torch")
    huge = torch.zeros(1).expand(4 * 5000, 5000)
    path = tmp_path / "net.pt"
    torch.save({"weight_ih_l0": huge, "weight_hh_l0": huge}, path)
    assert path.stat().st_size < 3000
    refused(path, f"tensor 'weight_ih_l0' of shape .* {MAX_ELEMENTS:,} elements")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("net/data.pkl", b"\x80\x02.")
        with archive.open("net/data/0", "w", force_zip64=True) as member:
            for _ in range(9):
                member.write(bytes(2**26))
    refused(path, f"unpacks to, .* {MAX_ELEMENTS:,} elements")


def test_a_factor_of_an_adapter_is_no_embedding(read):
    tensors = {**lstm(), **linear(), "lstm.lora_A.weight": rand(2, I), "lstm.lora_B.weight": rand(4 * H, 2)}
    result = read(tensors, dense=("linear",))
    assert result.embeddings == ()
    (note,) = result.report.notes
    assert note.startswith(
        "left out, since no option names them: 'lstm.lora_A' (weight), 'lstm.lora_B' (weight)"
    )


@pytest.mark.parametrize(("outputs", "fits"), [(I, True), (O, False)])
def test_a_dense_layer_that_fits_on_both_sides_is_told_of(read, outputs, fits):
    """A layer in front gives what the LSTM reads; its own inputs may be as many as the LSTM has outputs."""
    (note,) = read({**lstm(), **linear(outputs=outputs)}).report.notes
    assert ("it is taken to stand behind 'lstm', but would fit in front, too" in note) is fits


@pytest.mark.parametrize(
    ("ends", "maker", "remedy"),
    [
        (("_orig", "_mask"), "pruning", "prune.remove"),
        (("_g", "_v"), "a weight norm", "remove_weight_norm"),
        (("_orig", "_u", "_v"), "a spectral norm", "remove_spectral_norm"),
    ],
)
def test_what_makes_a_weight_of_parts_is_named_with_its_remedy(read, ends, maker, remedy):
    tensors = lstm()
    weight = tensors.pop("lstm.weight_hh_l0")
    tensors |= {f"lstm.weight_hh_l0{end}": weight[: len(weight) - at] for at, end in enumerate(ends)}
    with pytest.raises(ModelError, match=rf"has the parts that {maker} makes .* torch.nn.utils.{remedy}\("):
        read(tensors)


def test_an_attentions_bias_is_no_part_of_a_norm(read):
    tensors = {**lstm(), **linear(), "attn.bias_k": rand(1, 1, O), "attn.bias_v": rand(1, 1, O)}
    with pytest.raises(ModelError, match="name the dense layers") as error:
        read(tensors)
    assert "norm" not in str(error.value)
    assert read(tensors, dense=("linear",)).network.outputs == O


def test_pruned_tensors_are_read(read):
    tensors = {**lstm(), **linear()}
    wanted = dict(tensors)
    for name in ("lstm.weight_hh_l0", "linear.weight", "linear.bias"):
        mask = (rand(*tensors[name].shape) > 0).astype(np.float32)
        wanted[name] = tensors[name] * mask
        tensors |= {f"{name}_orig": tensors.pop(name), f"{name}_mask": mask}
    head = Dense(name="linear", weight=wanted["linear.weight"], bias=wanted["linear.bias"])
    x = rand(6, 2, I)
    close(run_float(read(tensors).network, x).y, run_float(expected(wanted, dense=(head,)), x).y)


# What torch.save writes beside plain tensors


def saved(folder, **tensors):
    """A file of an LSTM's state dict with these entries."""
    torch = pytest.importorskip("torch")
    torch.save({**torch.nn.LSTM(I, H).state_dict(), **tensors}, folder / "net.pt")
    return folder / "net.pt"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(make, words, id=name, marks=[] if name in ("sparse", "float8") else pytest.mark.slow)
        for name, make, words in (
            ("sparse", lambda torch, zeros: zeros.to_sparse(), "not float32 in layout sparse_coo"),
            ("rows", lambda torch, zeros: zeros.to_sparse_csr(), "not float32 in layout sparse_csr"),
            ("meta", lambda torch, zeros: zeros.to("meta"), "not float32 on the meta device, without values"),
            ("uint16", lambda torch, zeros: zeros.to(torch.uint16), "not uint16"),
            ("float8", lambda torch, zeros: zeros.to(torch.float8_e4m3fn), "not float8_e4m3fn"),
            (
                "quantised",
                lambda torch, zeros: torch.quantize_per_tensor(zeros, 0.1, 0, torch.qint8),
                "not qint8",
            ),
            (
                "nested",
                lambda torch, zeros: torch.nested.nested_tensor([zeros, zeros[:1]]),
                "not float32 nested",
            ),
        )
    ],
)
@pytest.mark.usefixtures("read_here")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_of_other_kinds(tmp_path, make, words):
    """Refused if a layer needs them, else left out."""
    torch = pytest.importorskip("torch")
    odd = make(torch, torch.zeros(4 * H, I))
    refused(saved(tmp_path, weight_ih_l0=odd), f"tensor 'weight_ih_l0' must be one of float16, .*, {words}")
    assert len(read_model(saved(tmp_path, other=odd), ReadOptions(dense=())).network.layers) == 1


@pytest.mark.usefixtures("read_here")
def test_a_tensor_with_its_negative_bit(tmp_path):
    """PyTorch keeps some signs apart from the values, as of the imaginary part of a conjugate."""
    torch = pytest.importorskip("torch")
    negative = torch.complex(torch.rand(4 * H, I), torch.rand(4 * H, I)).conj().imag
    assert negative.is_neg()
    layer = read_model(saved(tmp_path, weight_ih_l0=negative)).network.layers[0]
    np.testing.assert_array_equal(layer.w_ih, negative.resolve_neg().numpy())
