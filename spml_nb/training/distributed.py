"""Distributed training: each process computes the outputs of its share of every batch, and all
compute the same loss on the gathered outputs.
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
    """The processes started by `torchrun` to train one run; without it, a group of one.

    Args:
        device: of the run; NCCL for CUDA, else Gloo.

    Raises:
        SpmlError: if the processes cannot connect.
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
                    f'process {self.rank} of {self.size} cannot connect to the others: {error}. '
                    'Start them all with `spml train --nproc N` or torchrun.'
                ) from error

    @property
    def first(self) -> bool:
        "Whether this is the process that writes files and prints."
        return self.rank == 0

    def sizes(self, n: int) -> list[int]:
        "The number of rows of each process; all n if there are fewer rows than processes."
        if n < self.size:
            return [n] * self.size
        return [len(share) for share in np.array_split(np.empty(n), self.size)]

    def share(self, rows: np.ndarray) -> np.ndarray:
        "The rows of this process; all if there are fewer rows than processes."
        return rows if len(rows) < self.size else np.array_split(rows, self.size)[self.rank]

    def gather(self, share: Tensor | None, n: int) -> Tensor | None:
        "Concatenate the shares of all processes, differentiably, to (n, ...)."
        if share is None or self.size == 1 or n < self.size:
            return share
        return GatherRows.apply(share, self.sizes(n))

    def wrap(self, module: nn.Module) -> nn.Module:
        "The module for the forward pass; its gradients are averaged over processes."
        if self.size == 1:
            return module
        if self.device.type != 'cuda':
            return nn.parallel.DistributedDataParallel(module)
        # torch's converter would drop the activations of timm's norm layers
        from timm.layers import convert_sync_batchnorm

        module = convert_sync_batchnorm(module)
        return nn.parallel.DistributedDataParallel(module, device_ids=[self.device.index])

    @contextlib.contextmanager
    def forked_randomness(self, step: int):
        """Different random numbers in each process, for views and dropout in a step of an epoch.
        The common generator is left as it was.
        """
        if self.size == 1:
            yield
            return
        # differs from epoch to epoch, as each draws a permutation
        common = zlib.crc32(torch.get_rng_state().numpy().tobytes())
        with torch.random.fork_rng([self.device.index] if self.device.type == 'cuda' else []):
            torch.manual_seed((common << 31) + step * self.size + self.rank)
            yield

    def agree(self, *modules: nn.Module, parameters: bool = True):
        "Copy buffers, and parameters, from the first process to the others."
        if self.size == 1:
            return
        for module in modules:
            broadcast_state(module, parameters)

    def wait(self):
        "A barrier."
        if self.size > 1:
            dist.barrier()
