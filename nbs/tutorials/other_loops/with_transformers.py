"""A method in Hugging Face's Trainer: it computes the loss, a callback tells it the epochs."""

import torch
from toy import IMAGES, OBSERVED, TEST, TRAIN, TRUE, Network, TwoViews
from transformers import Trainer, TrainerCallback, TrainingArguments

from spml_nb.methods import create
from spml_nb.metrics import mean_average_precision

OPTIONS = {'learning_rate': 0.02, 'save_strategy': 'no', 'remove_unused_columns': False}


class WithMethod(Trainer):
    def __init__(self, method, **options):
        super().__init__(**options)
        self.method = method.to(self.args.device)
        self.add_callback(Epochs(self.method))

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return self.method.step(model, inputs, inputs['index'])

    def create_optimizer(self, model=None):
        groups = [{'params': self.model.parameters()}, *self.method.parameter_groups(0.02)]
        self.optimizer = torch.optim.Adam(groups, lr=0.02)
        return self.optimizer


class Epochs(TrainerCallback):
    def __init__(self, method):
        self.method = method

    def on_epoch_begin(self, args, state, control, **_):
        self.method.start_epoch(round(state.epoch) + 1)

    def on_epoch_end(self, args, state, control, model, **_):
        images = IMAGES[TRAIN].to(args.device)
        self.method.end_epoch(round(state.epoch), lambda _='': self.method.scores(model, images))


def train(name: str, epochs: int = 8, folder: str = 'trainer'):
    "A trained network and its method."
    torch.manual_seed(1)
    network = Network()
    method = create(name, OBSERVED.to(torch.int8), epochs=epochs, features=4)
    for stage in range(1, method.stages + 1):
        method.start_stage(stage)
        arguments = TrainingArguments(folder, **OPTIONS, num_train_epochs=epochs)
        WithMethod(method, model=network, args=arguments, train_dataset=TwoViews()).train()
    return network, method


if __name__ == '__main__':
    for name in ('role', 'lac'):
        network, method = train(name)
        scores = method.scores(network, IMAGES[TEST].to(method.z.device))
        print(f'{name}: test mAP {mean_average_precision(scores, TRUE[TEST]):.1f} %')
