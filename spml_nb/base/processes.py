"""Rows and states that several processes share, as those of `DistributedDataParallel` do."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def count_processes() -> int:
    "How many processes of a group train together; 1 without a group."
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


class GatherRows(torch.autograd.Function):
    """The rows of all processes, one behind the other: `apply(share (b, ...), sizes)` gives (sum of
    sizes, ...).

    The gradient is that of this process's rows alone, times the number of processes; the average
    over them undoes that.
    """

    @staticmethod
    def forward(ctx: Any, share: Tensor, sizes: list[int]) -> Tensor:
        first = sum(sizes[: dist.get_rank()])
        ctx.rows = slice(first, first + len(share))
        ctx.processes = len(sizes)
        return gather_rows(share, sizes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.processes * gradient[ctx.rows], None


def gather_rows(share: Tensor, sizes: list[int]) -> Tensor:
    "The rows of all processes, of unequal number, padded to the largest on the way."
    padded = share.new_zeros((max(sizes), *share.shape[1:]))
    padded[: len(share)] = share
    all_rows = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(all_rows, padded.contiguous())
    return torch.cat([rows[:n] for rows, n in zip(all_rows, sizes, strict=True)])


def gather_sizes(rows: Tensor) -> list[int]:
    "How many rows each process has."
    size = torch.tensor([len(rows)], device=rows.device)
    return gather_rows(size, [1] * count_processes()).tolist()


def broadcast_state(module: nn.Module, parameters: bool = True) -> None:
    "Give every process the buffers of the first one, and its parameters where they are wanted."
    for buffer in module.buffers():
        dist.broadcast(buffer, 0)
    if parameters:
        for parameter in module.parameters():
            dist.broadcast(parameter.detach(), 0)
