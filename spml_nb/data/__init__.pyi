from .dataset import MINIATURES as MINIATURES
from .dataset import PARTS as PARTS
from .dataset import Dataset as Dataset
from .dataset import join_items as join_items
from .loading import load as load
from .loading import names as names
from .loading import own_folder as own_folder
from .official.registry import BENCHMARKS as BENCHMARKS
