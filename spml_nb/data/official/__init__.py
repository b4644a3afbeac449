"""Readers of the papers' data sets in their official layouts."""

from spml_nb.base import lazily

__getattr__ = lazily(
    __name__, {'registry': 'BENCHMARKS REGISTRY check find names overview prepare table'}
)
