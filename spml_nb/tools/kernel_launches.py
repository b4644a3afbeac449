"""Count the kernels that a computation would launch on a GPU, without a GPU."""

from collections.abc import Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# operators that only allocate or alias memory
_FREE = {
    'alias',
    'detach',
    'empty',
    'empty_like',
    'empty_strided',
    'new_empty',
    'new_empty_strided',
    'scalar_tensor',  # stays on the host
}
# operators that torch implements by several kernels
_SEVERAL = {'binary_cross_entropy_with_logits': 4, 'logsumexp': 9}


class Launches(TorchDispatchMode):
    "A context manager whose `count` is the number of kernels launched in it."

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if not func.is_view and name not in _FREE:
            self.count += _SEVERAL.get(name, 1)
        return func(*args, **(kwargs or {}))


def count_launches(call: Callable, *inputs) -> int:
    """Count the kernels of a function and its backward pass.

    Args:
        call: returns a scalar tensor that requires grad.
        inputs: its arguments; tensors are moved to the meta device, so nothing is computed.
    """
    inputs = [
        x.detach().to('meta').requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
        for x in inputs
    ]
    with Launches() as launches:
        call(*inputs).backward()
    return launches.count
