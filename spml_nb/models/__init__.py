"""Backbones, heads, and the model that joins them."""

from spml_nb.base import lazily

__getattr__, __dir__, __all__ = lazily(__name__, __file__)
