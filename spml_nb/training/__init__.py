"""The training loop, from the task to the scores of a finished run."""

from spml_nb.base import lazily

__getattr__, __dir__, __all__ = lazily(__name__, __file__)
