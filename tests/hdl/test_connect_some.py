"""Members that are connected by name must fit."""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Member, Out

from rtlstm.hdl.component import Component, connect_some

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class Part(Component):
    """A component with one member."""

    word: Signal

    def __init__(self, word: Member) -> None:
        super().__init__({"word": word})

    def elaborate(self, platform: object) -> Module:
        return Module()


@pytest.mark.parametrize(
    ("one", "other", "message"), [(Out(8), In(7), "width"), (Out(8), Out(8), "several output")]
)
def test_members_must_fit(one: Member, other: Member, message: str) -> None:
    with pytest.raises(wiring.ConnectionError, match=message):
        connect_some(Module(), Part(one), Part(other), ["word"])


def test_a_name_must_be_a_members() -> None:
    with pytest.raises(wiring.SignatureError, match="wrod"):
        connect_some(Module(), Part(Out(1)), Part(In(1)), ["wrod"])


@pytest.mark.parametrize(("outside", "driven"), [(In(8), "inner"), (Out(8), "outer")])
def test_the_signature_says_which_side_drives(outside: Member, driven: str) -> None:
    m, outer, inner = Module(), Part(outside), Part(outside)
    connect_some(m, wiring.flipped(outer), inner, ["word"])
    (statement,) = m.d.comb._builder._statements["comb"]
    assert statement.lhs is (inner if driven == "inner" else outer).word
    assert statement.rhs is (outer if driven == "inner" else inner).word
