"""The methods: one module per family, one registry for all."""

from spml_nb.base import lazily

__getattr__, __dir__, __all__ = lazily(__name__, __file__)
