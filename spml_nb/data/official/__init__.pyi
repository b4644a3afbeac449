from .registry import BENCHMARKS as BENCHMARKS
from .registry import REGISTRY as REGISTRY
from .registry import describe_benchmarks as describe_benchmarks
from .registry import find_benchmark as find_benchmark
from .registry import list_missing_files as list_missing_files
from .registry import load_benchmark as load_benchmark
from .registry import prepare_benchmark as prepare_benchmark
