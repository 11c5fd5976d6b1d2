"""Boards: their pins, clocks and top levels, bitstreams, and folders for Vivado.

Devices, synthesis, and place and route are in ``rtlstm.fpga``.
"""
