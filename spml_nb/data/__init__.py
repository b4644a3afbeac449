"""Data sets: labels, photos, folders, and the official layouts."""
from spml_nb.base import lazily

__getattr__ = lazily(__name__, {
    'dataset': 'Dataset PARTS listed',
    'folder': 'CELLS LAYOUT PHOTOS',
    'loading': 'BENCHMARKS load names',
})
