"""A build's core in cocotb tests; needs the extra ``sim``. docs/integrate.md explains it.

Nothing else imports this module.
"""

from rtlstm.sim.cocotb_core import Core, CoreStream
from rtlstm.sim.scoreboard import Scoreboard

__all__ = ["Core", "CoreStream", "Scoreboard"]
