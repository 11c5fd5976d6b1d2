"""Devices and boards: what is on them, how their tools are run, and what came out.

Here are the devices and their estimates; synthesis, place and route, and floorplans; boards with their pins,
clocks and top levels; bitstreams, and folders for Vivado. It may import ``rtlstm.spec``, ``rtlstm.hdl``,
``rtlstm.host`` and ``rtlstm.sim``; ``rtlstm.gen`` and ``rtlstm.bench`` import it.
"""
