"""Many runs: the queue that trains them, and the same search for every method."""
from spml_nb.base import lazily

__getattr__ = lazily(__name__, {
    'queue': 'ENGINES attempt duration finished plan progress run work',
    'search': 'BUDGET Row SETTINGS SUITES candidates choose compare every_method finals key outcome record searched',
})
