"""A method in a plain PyTorch loop; by two processes: `torchrun --nproc-per-node 2 plain.py`."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler
from toy import IMAGES, OBSERVED, TEST, TRAIN, TRUE, Network, TwoViews

from spml_nb.methods import create
from spml_nb.metrics import mean_average_precision


def train(name: str, epochs: int = 8, lr: float = 0.02):
    "A trained network and the method with all it has learnt about the labels."
    torch.manual_seed(1)
    method = create(name, OBSERVED.to(torch.int8), epochs=epochs, features=4)
    network = Network()
    if dist.is_initialized():  # the method needs no wrapper: its state stays the same everywhere
        network = DistributedDataParallel(network)
        sampler = DistributedSampler(TwoViews())
    else:
        sampler = RandomSampler(TwoViews())
    batches = DataLoader(TwoViews(), batch_size=32, sampler=sampler)
    for stage in range(1, method.stages + 1):
        method.start_stage(stage)
        groups = [{'params': network.parameters()}, *method.parameter_groups(lr)]
        optimizer = torch.optim.Adam(groups, lr=lr)
        for epoch in range(1, epochs + 1):
            method.start_epoch(epoch)
            for batch in batches:
                loss = method.step(network, batch, batch['index'])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            method.end_epoch(epoch, lambda view='plain': method.scores(network, IMAGES[TRAIN]))
    return network, method


if __name__ == '__main__':
    if 'WORLD_SIZE' in os.environ:
        dist.init_process_group('gloo')
    for name in ('role', 'lac'):
        network, method = train(name)
        scores = method.scores(network, IMAGES[TEST])
        print(f'{name}: test mAP {mean_average_precision(scores, TRUE[TEST]):.1f} %')
