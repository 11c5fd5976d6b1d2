"""A build's core in cocotb tests; needs the extra ``sim``. docs/cocotb.md explains it.

Nothing else imports this module.
"""

try:
    from rtlstm.sim.cocotb_core import Core, CoreStream
    from rtlstm.sim.scoreboard import Scoreboard
except ModuleNotFoundError as error:
    if error.name not in ("cocotb", "rtlstm.sim"):
        raise
    from rtlstm.spec.errors import AbsentImportError

    raise AbsentImportError(
        "rtlstm.cocotb needs the package cocotb; install it with pip install 'rtlstm[sim]'"
    ) from None

__all__ = ["Core", "CoreStream", "Scoreboard"]
