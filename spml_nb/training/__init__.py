"""The training loop, from the task to the scores of a finished run."""
from spml_nb.base import lazily

__getattr__ = lazily(__name__, {
    'evaluation': 'check_backbone evaluate open_run rebuild',
    'selection': 'predict scores',
    'stages': 'Stage make_optimizer make_schedule',
    'task': 'Task make_task',
    'trainer': 'LossWatch Result Trainer best_weights compiled finish head_options read_result train',
})
