"""Many runs: the queue that trains them, and the same search for every method."""

from spml_nb.base import lazily

__getattr__ = lazily(
    __name__,
    {
        'queue': 'ENGINES attempt canonical duration finished key plan progress run staged work',
        'search': (
            'Choice LogUniform Row SEARCH_SEED SUITES Uniform best_of_k boards candidates '
            'choose drawn every_method finals outcome rates record rows_of searched seeds_of sweep '
            'trained'
        ),
    },
)
