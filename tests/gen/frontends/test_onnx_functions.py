"""ONNX models with functions of their own: inlined, and refused where they do not end."""

import time

import pytest
from onnx import helper
from support.onnx_files import call, check, function, save_with, twice
from support.refusals import refused


def test_function_is_inlined(path):
    half = function("half", helper.make_node("Tanh", ["a"], ["b"]))
    save_with(path, [half, twice("whole", "half")], "whole")
    network = check(path).network
    assert [layer.activation for layer in network.layers[1:]] == ["tanh", "tanh"]


@pytest.mark.parametrize(
    "functions", [[twice("f0", "f0")], [twice("f0", "f1"), twice("f1", "f0")]], ids=["itself", "each other"]
)
def test_function_that_calls_itself_is_refused(path, functions):
    save_with(path, functions, "f0")
    refused(path, "has a function 'f0' that calls itself")


def test_small_file_of_many_nodes_is_refused(path):
    end = function("f30", helper.make_node("Identity", ["a"], ["b"]))
    save_with(path, [*(twice(f"f{at}", f"f{at + 1}") for at in range(30)), end], "f0")
    begin = time.process_time()
    refused(path, r"at most 50,000 nodes.*1,073,741,826")
    assert time.process_time() - begin < 1 and path.stat().st_size < 10_000


def test_deep_functions_are_refused(path):
    end = function("f500", helper.make_node("Identity", ["a"], ["b"]))
    save_with(path, [*(function(f"f{at}", call(f"f{at + 1}", "a", "b")) for at in range(500)), end], "f0")
    refused(path, "at most 32 deep")
