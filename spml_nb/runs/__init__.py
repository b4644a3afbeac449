"""A run is a configuration and the folder it is trained in; the record is the table of all runs."""

# Importing it does not import torch.

from spml_nb.base import lazily

__getattr__, __dir__, __all__ = lazily(__name__, __file__)
