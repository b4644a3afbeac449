"""Published beside ours: the papers’ numbers, tables, figures and claims."""

from spml_nb.base import lazily

__getattr__, __dir__, __all__ = lazily(__name__, __file__)
