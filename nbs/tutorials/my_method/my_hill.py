"""A method in one file: copy this folder, and write your own loss here."""

from torch import Tensor
from torch.nn.functional import softplus

from spml_nb.methods.core import Uniform, promote, reduce, register_loss, same_shape


def my_hill_loss(
    logits: Tensor, z: Tensor, *, peak: float = 1.5, reduction: str = 'mean'
) -> Tensor:
    """Binary cross-entropy where a label is known, a bounded hill where it is not.

    Args:
        logits: (B, C), floating.
        z: observed labels (B, C) in {1, 0, −1}.
        peak: λ, from 1.5 on; the higher, the further up the scores lies the top of the hill.
        reduction: 'mean', 'sum', 'sample' or 'none'.

    Source: Zhang et al. 2021, Eq. 9, with the plain log loss on positives.
    """
    same_shape(logits, z)  # and labels that are 1, 0 and −1
    s = promote(logits)  # half precision becomes float32
    p = s.sigmoid()
    observed = softplus(-s * z)  # −log p where z = 1, −log(1 − p) where z = −1
    return reduce(observed.where(z != 0, (peak - p) * p**2), reduction)


# the keyword arguments are hyper-parameters; a search draws them from `search`
register_loss('my_hill', my_hill_loss, search={'peak': Uniform(1.5, 2.5)}, source='a tutorial')
