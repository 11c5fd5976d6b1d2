"""A registry of what the package, a program and installed packages offer."""

import pytest

from rtlstm.spec.activations.functions import ACTIVATIONS, ActivationFunction, FunctionDefinition
from rtlstm.spec.errors import ConfigurationError, ToolError
from rtlstm.spec.plugins import Registry


@pytest.fixture
def offers(tmp_path, monkeypatch):
    """Install a package of three entry points: one is good, one fails as it is imported, one is not there."""
    (tmp_path / "shapes.py").write_text("SQUARE = 4\n")
    (tmp_path / "broken_shapes.py").write_text("1 / 0\n")
    info = tmp_path / "shapes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shapes\nVersion: 1.0\n")
    (tmp_path / "bare_shapes.py").write_text(
        "from rtlstm.spec.errors import ToolError\nraise ToolError('pip install corners')\n"
    )
    points = "square = shapes:SQUARE\nbroken = broken_shapes:SIX\nmissing = no_such_module:FIVE\n"
    points += "bare = bare_shapes:SEVEN\n"
    (info / "entry_points.txt").write_text(f"[test.shapes]\n{points}")
    monkeypatch.syspath_prepend(tmp_path)


def shapes() -> Registry[int]:
    return Registry("shape", "test.shapes", {"triangle": 3})


def test_what_an_installed_package_offers_is_there(offers):
    registry = shapes()
    assert list(registry) == ["triangle", "bare", "broken", "missing", "square"]
    assert registry["square"] == 4
    assert registry.named("triangle") == 3


@pytest.mark.parametrize(("name", "why"), [("broken", "division by zero"), ("missing", "No module named")])
def test_what_cannot_be_imported_is_named(offers, name, why):
    with pytest.raises(ConfigurationError, match=f"shape '{name}' .* cannot be imported: {why}"):
        shapes()[name]


def test_what_says_itself_why_it_cannot_be_imported_is_heard(offers):
    with pytest.raises(ToolError, match="^pip install corners$"):
        shapes()["bare"]


def test_order_of_names_does_not_depend_on_what_was_used(offers):
    registry = shapes()
    before = list(registry)
    assert registry["square"] == 4
    assert list(registry) == before
    registry.add("circle", 0)
    assert list(registry) == ["triangle", "bare", "broken", "circle", "missing", "square"]


def test_an_item_can_be_added_once_and_taken_away():
    registry = shapes()
    registry.add("pentagon", 5)
    with pytest.raises(ConfigurationError, match="there is a shape 'pentagon' already; choose another name"):
        registry.add("pentagon", 6)
    registry.remove("pentagon")
    assert "pentagon" not in registry
    with pytest.raises(ConfigurationError, match="shape must be one of triangle, not 'pentagon'"):
        registry.named("pentagon")


def test_a_program_adds_an_activation():
    ACTIVATIONS.add("cube", FunctionDefinition(formula=lambda x, a, b: a * x**3, defaults=(2.0,), odd=True))
    try:
        cube = ActivationFunction.of("cube")
        assert str(cube) == "cube(2)"
        assert cube(3.0) == 54.0
        assert not cube.within_one
    finally:
        ACTIVATIONS.remove("cube")
    with pytest.raises(ValueError, match="activation must be one of identity, .*, not 'cube'"):
        ActivationFunction(name="cube")
