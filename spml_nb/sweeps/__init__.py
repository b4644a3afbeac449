"""Many runs: the queue that trains them, and the same search for every method."""

from spml_nb.base import lazily

__getattr__, __dir__, __all__ = lazily(__name__, __file__)
