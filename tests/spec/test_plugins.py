"""A registry of what the package, a program and installed packages offer."""

import subprocess
import sys

import pytest
from support.packages import install

from rtlstm.boards.catalogue import BOARDS
from rtlstm.spec.activations.functions import ACTIVATIONS, ActivationFunction, FunctionDefinition
from rtlstm.spec.buses import BUSES, Bus
from rtlstm.spec.errors import ConfigurationError, ToolError
from rtlstm.spec.plugins import PluginWarning, Registry


@pytest.fixture
def offers(tmp_path, monkeypatch):
    """Install a package with one good item, and one for each way not to be."""
    (tmp_path / "shapes.py").write_text("SQUARE = 4\nclass Five: pass\n")
    (tmp_path / "broken_shapes.py").write_text("1 / 0\n")
    (tmp_path / "bare_shapes.py").write_text(
        "from rtlstm.spec.errors import ToolError\nraise ToolError('pip install corners')\n"
    )
    points = (
        "[test.shapes]\nsquare = shapes:SQUARE\nbroken = broken_shapes:SIX\nmissing = no_such_module:FIVE\n"
    )
    points += "bare = bare_shapes:SEVEN\nother = shapes:Five\n"
    install(tmp_path, "shapes", points)
    monkeypatch.syspath_prepend(tmp_path)


def shapes() -> Registry[int]:
    lazy = {"circle": "sys:maxsize"}
    return Registry("shape", "test.shapes", {"triangle": 3}, lazy=lazy, kind=int, taken=["line"])


def test_what_an_installed_package_offers_is_there(offers):
    registry = shapes()
    assert list(registry) == ["triangle", "circle", "bare", "broken", "missing", "other", "square"]
    assert len(registry) == 7 and registry["square"] == 4
    assert registry.named("triangle") == 3


@pytest.mark.parametrize(("name", "why"), [("broken", "division by zero"), ("missing", "No module named")])
def test_what_cannot_be_imported_is_named(offers, name, why):
    with pytest.raises(
        ConfigurationError, match=f"shape '{name}' of shapes 1.0, .* cannot be imported: {why}"
    ):
        shapes()[name]


def test_what_is_of_another_kind_is_named(offers):
    wrong = "shape 'other' of shapes 1.0, 'shapes:Five', must be an object of the class int, not <class"
    with pytest.raises(ConfigurationError, match=wrong):
        shapes().named("other")
    with pytest.raises(ConfigurationError, match="shape 'six' must be an object of the class int, not '6'"):
        shapes().add("six", "6")
    with pytest.raises(ConfigurationError, match="board 'mine' must be a function, not 6"):
        BOARDS.add("mine", 6)
    with pytest.raises(ConfigurationError, match="bus 'mine' must be an object of the class Bus, not <class"):
        BUSES.add("mine", Bus)


def test_a_scan_skips_what_cannot_be_used_and_says_so_once(offers):
    registry = shapes()
    with pytest.warns(PluginWarning) as said:
        assert dict(registry.items()) == {"triangle": 3, "circle": sys.maxsize, "square": 4}
    texts = [str(each.message) for each in said]
    assert [text.split()[1] for text in texts] == ["'bare'", "'broken'", "'missing'", "'other'"]
    assert texts[1].startswith("shape 'broken' of shapes 1.0 is skipped: ")
    assert texts[0] == "shape 'bare' of shapes 1.0 is skipped: pip install corners"
    assert list(registry.values()) == [3, sys.maxsize, 4]  # without a warning, which would be an error
    with pytest.raises(ToolError):
        registry.named("bare")


def test_a_scan_does_not_hide_what_fails_of_rtlstms_own_or_of_the_program():
    with pytest.raises(ConfigurationError, match="shape 'disc' of rtlstm, 'no_such:DISC', cannot be imp"):
        Registry[int]("shape", "test.shapes", lazy={"disc": "no_such:DISC"}, kind=int).values()
    registry = Registry[int]("shape", "test.shapes", kind=int)
    registry.add("six", 6)

    def refuse(name: str) -> int:
        raise ConfigurationError(f"no {name}")

    with pytest.raises(ConfigurationError, match="no six"):
        registry.each(refuse)


@pytest.mark.parametrize("name", ["triangle", "circle", "line"])
def test_a_name_of_rtlstms_cannot_be_offered(name, tmp_path, monkeypatch):
    install(tmp_path, "copies", f"[test.shapes]\n{name} = sys:maxsize\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = shapes()
    text = f"shape '{name}' is one of rtlstm's, but copies 1.0 offers one of this name, too; uninstall"
    for use in (lambda: registry[name], registry.values):
        with pytest.raises(ConfigurationError, match=text):
            use()
    assert registry["circle" if name == "triangle" else "triangle"]
    with pytest.raises(ConfigurationError, match=f"shape '{name}' is there already"):
        registry.add(name, 6)


def test_a_name_cannot_be_offered_twice(tmp_path, monkeypatch):
    for name in ("shapes", "more"):
        (tmp_path / name).mkdir()
        install(tmp_path / name, name, "[test.shapes]\nsquare = sys:maxsize\n")
        monkeypatch.syspath_prepend(tmp_path / name)
    registry = shapes()
    text = "shape 'square' is offered twice, by more 1.0 and shapes 1.0; uninstall one of them"
    with pytest.raises(ConfigurationError, match=text):
        registry.named("square")
    with pytest.warns(PluginWarning, match=text):
        assert "square" not in dict(registry.items())
    assert registry.named("triangle") == 3


@pytest.mark.parametrize("distribution", ["rtlstm", "rtlstm-driver"])
def test_entry_points_of_an_earlier_rtlstm_are_not_read(distribution, tmp_path, monkeypatch):
    install(tmp_path, distribution, "[test.shapes]\ntriangle = moved:TRIANGLE\ncircle = sys:maxsize\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert dict(shapes().items()) == {"triangle": 3, "circle": sys.maxsize}


def test_families_and_backends_need_no_entry_points():
    program = (
        "import importlib.metadata as metadata; metadata.entry_points = lambda **_: ()\n"
        "from rtlstm.host.transport import BACKENDS\n"
        "from rtlstm.spec.family import FAMILIES\n"
        "assert [family.name for family in FAMILIES.values()] == list(FAMILIES)\n"
        "print(*FAMILIES, *BACKENDS)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"ecp5", "generic", "golden", "verilator", "serial", "mmio"} <= set(done.stdout.split())


def test_what_says_itself_why_it_cannot_be_imported_is_heard(offers):
    with pytest.raises(ToolError, match="^pip install corners$"):
        shapes()["bare"]


def test_order_of_names_does_not_depend_on_what_was_used(offers):
    registry = shapes()
    before = list(registry)
    assert registry["square"] == 4 and list(registry) == before
    registry.add("oval", 0)
    assert [*registry][:2] == ["triangle", "circle"]
    assert [*registry][2:] == ["bare", "broken", "missing", "other", "oval", "square"]


def test_an_item_can_be_added_once_and_taken_away():
    registry = shapes()
    registry.add("pentagon", 5)
    with pytest.raises(ConfigurationError, match="shape 'pentagon' is there already; choose another name"):
        registry.add("pentagon", 6)
    assert registry.added == {"pentagon": 5} and registry["pentagon"] == 5
    registry.remove("pentagon")
    assert "pentagon" not in registry
    with pytest.raises(ConfigurationError, match="shape must be one of triangle, circle, not 'pentagon'"):
        registry.named("pentagon")
    for name in ("pentagon", "triangle"):
        with pytest.raises(ConfigurationError, match=f"'{name}' cannot be removed: it was not added"):
            registry.remove(name)


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
