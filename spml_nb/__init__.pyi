from .use.comparison import compare as compare
from .use.predict import predict as predict

__version__: str
