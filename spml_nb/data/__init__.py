"""Data sets: labels, photos, folders, and the official layouts of the papers' benchmarks."""

from spml_nb.base import lazily

__getattr__, __dir__, __all__ = lazily(__name__, __file__)
