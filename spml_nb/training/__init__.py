"""The training loop, from the task to the scores of a finished run."""

from spml_nb.base import lazily

__getattr__ = lazily(
    __name__,
    {
        'evaluation': 'evaluate open_run rebuild',
        'network': 'check_backbone open_network',
        'selection': 'predict scores',
        'task': 'Task make_task',
        'trainer': 'Result Trainer finish read_result train',
    },
)
