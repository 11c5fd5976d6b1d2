"""Trains networks in the hardware's own arithmetic; needs the extra ``torch``.

>>> from rtlstm.train import prepare
>>> q = prepare(model, calibration=x, weight_bits=4, data_bits=8)
>>> ...                     # any training loop: q is a torch.nn.Module
>>> build = rtlstm.compile(q, fit="lfe5u-85f-8")
"""

from rtlstm.train.module import Prepared
from rtlstm.train.prepare import prepare

__all__ = ["Prepared", "prepare"]
