"""Readers of the papers' data sets in their official layouts."""

from spml_nb.base import lazily

__getattr__, __dir__, __all__ = lazily(__name__, __file__)
