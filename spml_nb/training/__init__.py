"""The training loop, from the task to the scores of a finished run."""

from spml_nb.base import lazily

__getattr__ = lazily(
    __name__,
    {
        'evaluation': 'evaluate open_on_dataset open_run',
        'network': 'check_backbone open_network',
        'selection': 'predict_logits score_finished_run',
        'task': 'Task make_task',
        'trainer': 'Result Trainer finish_run read_result train',
    },
)
