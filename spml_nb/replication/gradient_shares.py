"""How much each part of OPML-SP changes the gradient, to choose weights for which the parts act."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import torch
from torch import Tensor

from ..methods.opml import high_rank_loss, opml_loss, soft_opml_loss, trust_share
from ..metrics import average_precision
from ..runs.config import Config
from ..training.trainer import Trainer, train
from . import ablation_arms

WEIGHTS = (1e-4, 1e-3, 1e-2, 1e-1)  # λ of high rank
POWERS = (4, 2, 1)  # γ of smoothing
_LEAST = 0.1  # share of the gradient from which on a part acts
_SEED = 1000  # which no final run has


class _Watch:
    """Records the norms of gradients in the logits at each step of OPML, from the second epoch on,
    since smoothing needs the average precision after the first.
    """

    def __init__(self):
        self.ap = None
        self.norms = []

    def state_dict(self) -> dict:
        return {'ap': self.ap, 'norms': self.norms}

    def load_state_dict(self, state: dict):
        self.ap = state['ap']
        self.norms = state['norms']

    def __call__(self, trainer: Trainer, index: Tensor, outputs, loss: Tensor):
        if self.ap is None:
            return
        s = outputs.logits.detach().requires_grad_()
        z = trainer.method.z[index.to(s.device)]

        def gradient(value: Tensor) -> Tensor:
            return torch.autograd.grad(value, s)[0]

        plain = gradient(opml_loss(s, z))
        rank = gradient(high_rank_loss(s.sigmoid(), weight=1.0)).norm().item()
        norms = {'loss': plain.norm().item()}
        norms |= {f'λ = {weight:g}': weight * rank for weight in WEIGHTS}
        for power in POWERS:
            soft = gradient(soft_opml_loss(s, z, trust_share(s, self.ap, power)))
            norms[f'γ = {power}'] = (soft - plain).norm().item()
        self.norms.append(norms)

    def end_epoch(self, trainer: Trainer):
        positive = trainer.method.z > 0
        ap = average_precision(trainer.score(), positive, unknown='negative')
        self.ap = torch.from_numpy(ap).float().to(positive.device)


def measure_shares(config: Config) -> pd.Series:
    """Train OPML without its parts, and measure what each would add to the gradient.

    Args:
        config: Of `opml_sp` with all parts off, two epochs or more.

    Returns:
        Series by 'λ = 0.01', 'γ = 2' and so on: mean norm of the gradient that the part adds, with
        respect to the logits, relative to that of the loss.
    """
    watch = _Watch()
    with TemporaryDirectory() as folder:
        train(config, root=Path(folder), on_step=watch)
    means = pd.DataFrame(watch.norms).mean()
    return means.drop('loss') / means.loss


def shares_by_set() -> pd.DataFrame:
    """`measure_shares` for OPML of the ablation, a column for each of its photo sets."""
    ablation = ablation_arms.read_ablations()['opml_parts']
    shares = {}
    for dataset in ablation.columns.values():
        config, *_ = ablation_arms.arm_configs(ablation, 'OPML', dataset, pd.DataFrame())
        shares[dataset] = measure_shares(config.changed(seed=_SEED, label_seed=_SEED))
    return pd.DataFrame(shares)


def smallest_acting_weights(shares: pd.DataFrame) -> tuple[float, float]:
    """λ and γ of the ablation: the smallest of `WEIGHTS` and the largest of `POWERS` for which the
    part is at least a tenth of the gradient on every set.

    Args:
        shares: As from `shares_by_set`.
    """
    acts = (shares >= _LEAST).all(axis=1)
    weight = next(weight for weight in WEIGHTS if acts[f'λ = {weight:g}'])
    power = next(power for power in POWERS if acts[f'γ = {power}'])
    return weight, power
