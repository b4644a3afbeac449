"""Multi-label image classification from single positive labels."""

from spml_nb.base import lazily

__version__ = "0.2.0"

# `from spml_nb import predict`: torch is loaded only then
__getattr__, __dir__, __all__ = lazily(__name__, __file__)
