"""Names of builds: they become Verilog modules and files."""

import re

from rtlstm.spec.errors import ConfigurationError

__all__ = ["KEYWORDS", "check_build_name", "derive_build_name", "explain_build_name"]

_LONGEST = 64

KEYWORDS = frozenset(
    """
    accept_on alias always always_comb always_ff always_latch and assert assign assume automatic
    before begin bind bins binsof bit break buf bufif0 bufif1 byte case casex casez cell chandle
    checker class clocking cmos config const constraint context continue cover covergroup coverpoint
    cross deassign default defparam design disable dist do edge else end endcase endchecker endclass
    endclocking endconfig endfunction endgenerate endgroup endinterface endmodule endpackage
    endprimitive endprogram endproperty endsequence endspecify endtable endtask enum event eventually
    expect export extends extern final first_match for force foreach forever fork forkjoin function
    generate genvar global highz0 highz1 if iff ifnone ignore_bins illegal_bins implements implies
    import incdir include initial inout input inside instance int integer interconnect interface
    intersect join join_any join_none large let liblist library local localparam logic longint
    macromodule matches medium modport module nand negedge nettype new nexttime nmos nor
    noshowcancelled not notif0 notif1 null or output package packed parameter pmos posedge primitive
    priority program property protected pull0 pull1 pulldown pullup pulsestyle_ondetect
    pulsestyle_onevent pure rand randc randcase randsequence rcmos real realtime ref reg reject_on
    release repeat restrict return rnmos rpmos rtran rtranif0 rtranif1 s_always s_eventually
    s_nexttime s_until s_until_with scalared sequence shortint shortreal showcancelled signed small
    soft solve specify specparam static string strong strong0 strong1 struct super supply0 supply1
    sync_accept_on sync_reject_on table tagged task this throughout time timeprecision timeunit tran
    tranif0 tranif1 tri tri0 tri1 triand trior trireg type typedef union unique unique0 unsigned until
    until_with untyped use uwire var vectored virtual void wait wait_order wand weak weak0 weak1 while
    wildcard wire with within wor xnor xor
    """.split()  # noqa: SIM905
)
"""Keywords of Verilog and SystemVerilog (tools read the one as the other)."""

_PREFIX = "rtlstm_"
"""Frames around builds begin with it: harness, board, system; so do primitives before they have an owner."""


def _is_reserved(name: str) -> bool:
    return name.lower() in KEYWORDS or name.lower().startswith(_PREFIX)


def _clean(text: str) -> str:
    """Leave what a name may hold, and begin it with a letter."""
    clean = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")[:_LONGEST].rstrip("_")
    if not clean or not clean[0].isalpha() or clean.lower().startswith(_PREFIX):
        clean = f"lstm_{clean}"[:_LONGEST].rstrip("_")
    return clean


def derive_build_name(text: str) -> str:
    """Turn a model's file name, or any text, into a build name."""
    clean = _clean(text)
    return f"{clean}_core" if _is_reserved(clean) else clean


def explain_build_name(text: str) -> str | None:
    """Say why the name that is derived from a text has an addition; None if it has none."""
    clean = _clean(text)
    if not _is_reserved(clean):
        return None
    name = derive_build_name(text)
    return f"the build is named {name}, because {clean!r} is a word that Verilog tools reserve"


def check_build_name(name: str) -> str:
    """Return a name that a user chose, if it can be a Verilog module's.

    Raises
    ------
    ConfigurationError
        If it cannot.
    """
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) or len(name) > _LONGEST:
        raise ConfigurationError(
            f"a build's name must begin with a letter and hold at most {_LONGEST} letters, digits and "
            f"underscores, not {name!r}; try {derive_build_name(name)!r}"
        )
    if _is_reserved(name):
        raise ConfigurationError(
            f"a build's name must not be a word that Verilog tools reserve, nor begin with {_PREFIX}, as "
            f"{name!r}; try {derive_build_name(name)!r}"
        )
    return name
