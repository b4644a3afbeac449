"""A method as a LightningModule; LAC's second stage is a second `fit`."""

import lightning
import torch
from torch.utils.data import DataLoader
from toy import IMAGES, OBSERVED, TEST, TRAIN, TRUE, Network, TwoViews

from spml_nb.methods import create
from spml_nb.metrics import mean_average_precision


class Training(lightning.LightningModule):
    "The method is a submodule, so that checkpoints hold all it has learnt about the labels."

    def __init__(self, name: str, epochs: int, lr: float = 0.02):
        super().__init__()
        self.network = Network()
        self.method = create(name, OBSERVED.to(torch.int8), epochs=epochs, features=4)
        self.lr = lr

    def configure_optimizers(self):
        groups = [{'params': self.network.parameters()}, *self.method.parameter_groups(self.lr)]
        return torch.optim.Adam(groups, lr=self.lr)

    def on_train_epoch_start(self):
        self.method.start_epoch(self.current_epoch + 1)

    def training_step(self, batch, batch_idx):
        return self.method.step(self.network, batch, batch['index'])

    def score(self, view='plain'):
        return self.method.scores(self.network, IMAGES[TRAIN].to(self.device))

    def on_train_epoch_end(self):
        self.method.end_epoch(self.current_epoch + 1, self.score)


def train(name: str, epochs: int = 8, **trainer):
    "A trained network and its method. trainer: options of `lightning.Trainer`, such as devices=1."
    lightning.seed_everything(1, verbose=False)
    module = Training(name, epochs)
    for stage in range(1, module.method.stages + 1):
        module.method.start_stage(stage)
        batches = DataLoader(TwoViews(), batch_size=32, shuffle=True)
        lightning.Trainer(max_epochs=epochs, **trainer).fit(module, batches)
    return module.network, module.method


if __name__ == '__main__':
    for name in ('role', 'lac'):
        network, method = train(name)
        scores = method.scores(network, IMAGES[TEST].to(method.z.device))
        print(f'{name}: test mAP {mean_average_precision(scores, TRUE[TEST]):.1f} %')
