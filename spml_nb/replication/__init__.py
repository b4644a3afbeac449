"""The study: the papers’ tables, figures and claims, published and ours."""

from spml_nb.base import lazily

__getattr__, __dir__, __all__ = lazily(__name__, __file__)
