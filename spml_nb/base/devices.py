"""Copies from the CPU to a device that nobody waits for."""

import numpy as np
import torch
from torch import Tensor

# They work through a queue of their own: a copy from pinned memory joins it, and any other waits.
QUEUED = {'cuda'}


def is_queued(device: torch.device | str) -> bool:
    "Whether a copy to a device should come from pinned memory."
    return torch.device(device).type in QUEUED


def copy_to_device(values: np.ndarray | Tensor, device: torch.device | str) -> Tensor:
    """Copy from the CPU to a device without waiting for what the device still has to do.

    Args:
        values: in pinned memory or not.
        device: where to.
    """
    values = torch.as_tensor(values)
    if not is_queued(device) or not values.is_cpu:
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
