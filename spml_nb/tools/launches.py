"""How many kernels a computation would launch on a GPU, counted without one."""

from collections.abc import Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# memory and other names for it; nothing is computed
_FREE = {
    'alias',
    'detach',
    'empty',
    'empty_like',
    'empty_strided',
    'new_empty',
    'new_empty_strided',
    'scalar_tensor',  # which stays on the host
}
# made of several in torch's own code
_SEVERAL = {'binary_cross_entropy_with_logits': 4, 'logsumexp': 9}


class Launches(TorchDispatchMode):
    "Counts, in `count`, the kernels of what runs within it."

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if not func.is_view and name not in _FREE:
            self.count += _SEVERAL.get(name, 1)
        return func(*args, **(kwargs or {}))


def count_launches(call: Callable, *inputs) -> int:
    """The kernels of a computation.

    Args:
        call: gives one number, of which the gradient is computed as well.
        inputs: what it takes; tensors are replaced by ones without values, so that nothing is
            computed, and the first may ask for a gradient.
    """
    inputs = [
        x.detach().to('meta').requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
        for x in inputs
    ]
    with Launches() as launches:
        call(*inputs).backward()
    return launches.count
