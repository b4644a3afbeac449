"""Multi-label image classification from single positive labels: five papers, one honest protocol

Modules:

- `spml_nb.runs.folder`: A run is a folder: its configuration, curves, checkpoints and result, and at the very end DONE.
- `spml_nb.sweeps.queue`: Trains many configurations in parallel, here or on a Ray cluster; resumes after any interruption.
- `spml_nb.sweeps.search`: Random draws from one declared table, chosen by validation, then trained with fresh seeds.
- `spml_nb.sweeps.transfer`: Measures a backbone on other data sets: a linear classifier on its frozen features.
- `spml_nb.tools.doctor`: Checks everything that a run needs, and says what is wrong and what to do about it.
- `spml_nb.tools.reproduce`: Trains a finished run again and says what differs between the two runs and their results."""

__version__ = "0.1.0"

from spml_nb.base import lazily

__getattr__ = lazily(
    __name__, {'use.predict': 'predict'}
)  # `from spml_nb import predict`: torch is loaded only then
