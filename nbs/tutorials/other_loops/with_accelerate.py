"""The same loop with Hugging Face Accelerate: `accelerate launch with_accelerate.py`."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from toy import IMAGES, OBSERVED, TEST, TRAIN, TRUE, Network, TwoViews

from spml_nb.methods import create
from spml_nb.metrics import mean_average_precision


def train(name: str, epochs: int = 8, lr: float = 0.02):
    "A trained network and the method with all it has learnt about the labels."
    accelerator = Accelerator()
    torch.manual_seed(1)
    method = create(name, OBSERVED.to(torch.int8), epochs=epochs, features=4)
    method = method.to(accelerator.device)  # not prepared: its state stays the same everywhere
    accelerator.register_for_checkpointing(method)  # a state_dict like any other
    batches = DataLoader(TwoViews(), batch_size=32, shuffle=True)
    network, batches = accelerator.prepare(Network(), batches)
    images = IMAGES.to(accelerator.device)
    for stage in range(1, method.stages + 1):
        method.start_stage(stage)
        groups = [{'params': network.parameters()}, *method.parameter_groups(lr)]
        optimizer = accelerator.prepare(torch.optim.Adam(groups, lr=lr))
        for epoch in range(1, epochs + 1):
            method.start_epoch(epoch)
            for batch in batches:
                loss = method.step(network, batch, batch['index'])
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
            method.end_epoch(epoch, lambda view='plain': method.scores(network, images[TRAIN]))
    return network, method


if __name__ == '__main__':
    for name in ('role', 'lac'):
        network, method = train(name)
        scores = method.scores(network, IMAGES[TEST].to(method.z.device))
        print(f'{name}: test mAP {mean_average_precision(scores, TRUE[TEST]):.1f} %')
