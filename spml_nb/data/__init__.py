"""Data sets: labels, photos, folders, and the official layouts of the papers' benchmarks."""

from spml_nb.base import lazily

__getattr__ = lazily(
    __name__,
    {
        'dataset': 'Dataset MINIATURES PARTS join_items',
        'loading': 'load names own_folder',
        'official.registry': 'BENCHMARKS',
    },
)
