"""Devices and boards: what is on them, how their tools are run, and what came out.

Synthesis and place and route of a core are here; board tops and bitstreams are to come. It may import
``rtlstm.spec``, ``rtlstm.hdl``, ``rtlstm.host`` and ``rtlstm.sim``; only ``rtlstm.gen`` imports it.
"""
