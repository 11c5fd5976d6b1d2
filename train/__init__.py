"""Trains networks in the hardware's own arithmetic; needs the extra ``torch``.

>>> from rtlstm.train import prepare
>>> q = prepare(model, calibration=x, weight_bits=4, data_bits=8)
>>> ...                     # any training loop: q is a torch.nn.Module
>>> build = rtlstm.compile(q, fit="lfe5u-85f-8")
"""

from rtlstm.gen.frontends.arrays import import_extra

import_extra("torch", "torch", "training")

from rtlstm.train.finetune import Finetuned, FinetuneRequest, finetune  # noqa: E402
from rtlstm.train.module import Prepared  # noqa: E402
from rtlstm.train.prepare import prepare  # noqa: E402

__all__ = ["FinetuneRequest", "Finetuned", "Prepared", "finetune", "prepare"]
