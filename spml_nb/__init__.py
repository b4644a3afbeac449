__version__ = "0.1.0"

from spml_nb.base import lazily

__getattr__ = lazily(
    __name__, {'use.predict': 'predict'}
)  # `from spml_nb import predict`: torch is loaded only then
