"""Each process passes its share of every batch through the network, and all compute the same loss
on all outputs.
"""

import contextlib
import os
import zlib

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..base.errors import SpmlError
from ..base.processes import GatherRows, broadcast_state


class Group:
    """The processes that train one run together, as `torchrun` announces them. A process by itself
    is a group of one.

    Args:
        device: of the run; it decides how they talk (NCCL or Gloo).

    Raises:
        SpmlError: if they cannot meet.
    """

    def __init__(self, device: torch.device | str = 'cpu'):
        self.size = int(os.environ.get('WORLD_SIZE', 1))
        self.rank = int(os.environ.get('RANK', 0))
        self.device = torch.device(device)
        if self.size == 1:
            return
        if self.device.type == 'cuda':
            self.device = torch.device('cuda', int(os.environ.get('LOCAL_RANK', 0)))
            torch.cuda.set_device(self.device)
        if not dist.is_initialized():
            try:
                dist.init_process_group('nccl' if self.device.type == 'cuda' else 'gloo')
            except (ValueError, RuntimeError) as error:
                raise SpmlError(
                    f'process {self.rank} of {self.size} cannot meet the others: {error}. Start '
                    'them all with `spml train --nproc N` or torchrun.'
                ) from error

    @property
    def first(self) -> bool:
        "Whether this is the process that writes and talks."
        return self.rank == 0

    def sizes(self, n: int) -> list[int]:
        "How many of n rows each process takes. Fewer rows than processes are taken by all."
        if n < self.size:
            return [n] * self.size
        return [len(share) for share in np.array_split(np.empty(n), self.size)]

    def share(self, rows: np.ndarray) -> np.ndarray:
        "The rows (b,) of (n,) for this process; all of them if there are fewer than processes."
        return rows if len(rows) < self.size else np.array_split(rows, self.size)[self.rank]

    def gather(self, share: Tensor | None, n: int) -> Tensor | None:
        """The rows (n, ...) of all processes, differentiable. share: the rows for this process, or
        None; n: the number of all.
        """
        if share is None or self.size == 1 or n < self.size:
            return share
        return GatherRows.apply(share, self.sizes(n))

    def wrap(self, module: nn.Module) -> nn.Module:
        "The module as training calls it: gradients are averaged over processes."
        if self.size == 1:
            return module
        if self.device.type != 'cuda':
            return nn.parallel.DistributedDataParallel(module)
        # unlike torch's, it keeps the activations of timm's norm layers
        from timm.layers import convert_sync_batchnorm

        module = convert_sync_batchnorm(module)
        return nn.parallel.DistributedDataParallel(module, device_ids=[self.device.index])

    @contextlib.contextmanager
    def forked_randomness(self, step: int):
        """Other random numbers in each process, for views and dropout, in a step of the epoch; no
        common one is used up.
        """
        if self.size == 1:
            yield
            return
        # an epoch's permutation has changed it
        common = zlib.crc32(torch.get_rng_state().numpy().tobytes())
        with torch.random.fork_rng([self.device.index] if self.device.type == 'cuda' else []):
            torch.manual_seed((common << 31) + step * self.size + self.rank)
            yield

    def agree(self, *modules: nn.Module, parameters: bool = True):
        "Give every process the buffers of the first one, and its parameters where they are wanted."
        if self.size == 1:
            return
        for module in modules:
            broadcast_state(module, parameters)

    def wait(self):
        "Wait until all have come here."
        if self.size > 1:
            dist.barrier()
