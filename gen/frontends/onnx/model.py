"""Reads ONNX models: branches, quantisers and cells are resolved, then the graph is translated and read."""

from pathlib import Path
from typing import Any

from rtlstm.gen.frontends.onnx.branches import take_branches
from rtlstm.gen.frontends.onnx.definitions import find_undefined
from rtlstm.gen.frontends.onnx.node_graph import OnnxGraph, load_onnx
from rtlstm.gen.frontends.onnx.quantised import input_text, replace_quantisers
from rtlstm.gen.frontends.onnx.translate import check_meanings, translate
from rtlstm.gen.frontends.reader import read
from rtlstm.gen.frontends.reading import ReadOptions, ReportBuilder
from rtlstm.spec.errors import ModelError
from rtlstm.spec.network import Network


def read_onnx(path: Path, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read an ONNX file; ``report`` records how every node is treated."""
    report.format = "onnx"
    return read_onnx_model(load_onnx(path), options, report)


def read_onnx_model(model: Any, options: ReadOptions, report: ReportBuilder) -> Network:
    """Read an ONNX model that is loaded and checked."""
    graph, taken = take_branches(model, options.branches)
    check_meanings(graph.nodes)
    undefined = find_undefined(graph, model)
    graph, roundings = replace_quantisers(model, graph, options.output, report)
    graph.integer_rows = report.integer_rows
    for note in taken:
        report.note(note)
    unread: list[str] = []
    try:
        network = read(translate(graph, unread), options.replace(branches=()), report)
    except ModelError as error:
        texts = [_unrolled_loop(graph), str(error), *unread]
        raise ModelError("; ".join(filter(None, texts))) from None
    if undefined:
        raise ModelError(undefined)
    for one in roundings:
        if report.input in (one.tensor, one.gives):
            report.note(input_text(one))
    return network


def _unrolled_loop(graph: OnnxGraph) -> str:
    """Say that the steps of a loop stand one after the other, which nothing else multiplies by one weight."""
    products: dict[str, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        if node.op_type in ("Gemm", "MatMul") and graph.is_constant(node.input[1]):
            weight, before = node.input[1], graph.producer(node.input[1])
            while before is not None and before.op_type in ("Identity", "Transpose"):
                weight, before = before.input[0], graph.producer(before.input[0])
            products.setdefault(weight, []).append(index)
    for weight, found in products.items():
        if len(found) > 1 and found[-1] in graph.descendants(found[:1]):
            return (
                f"{len(found)} nodes multiply with {weight!r}, one after the other: the exporter has "
                "unrolled a loop over the steps, as PyTorch's newer one does with nn.RNN; export it with "
                "dynamo=False, or give the module itself or a .pt2 file"
            )
    return ""
