"""The methods: one module per family, one registry for all."""

from spml_nb.base import lazily

__getattr__ = lazily(
    __name__,
    {'core': 'Method create dataset_family find names register register_loss resolve_hparams'},
)
