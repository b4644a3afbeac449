from .registry import BENCHMARKS as BENCHMARKS
from .registry import REGISTRY as REGISTRY
from .registry import check as check
from .registry import find as find
from .registry import names as names
from .registry import overview as overview
from .registry import prepare as prepare
from .registry import table as table
