from .dataset import MINIATURES as MINIATURES
from .dataset import PARTS as PARTS
from .dataset import Dataset as Dataset
from .dataset import join_items as join_items
from .loading import is_user_folder as is_user_folder
from .loading import load as load
from .loading import names as names
from .official.registry import BENCHMARKS as BENCHMARKS
