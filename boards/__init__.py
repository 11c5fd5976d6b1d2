"""Boards: their descriptions as data, top levels of core and host link, and the bitstream flow.

Empty so far. A board is one module: what is on it, which pins, how to program it. It may import
``rtlstm.spec``, ``rtlstm.hdl``, ``rtlstm.host`` and ``rtlstm.sim``; only ``rtlstm.gen`` imports it.
"""
