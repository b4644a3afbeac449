"""The whole study: its experiments by name, and all pages rebuilt from the record."""

# Most is imported where it is used: `spml sweep methods --dry-run` needs no drawing.

from collections.abc import Callable
from importlib import import_module

from ..sweeps import boards
from .experiments.core import Experiment

# beside the papers' tables and figures and the boards of all methods; each in `experiments`
EXPERIMENTS = (
    'biased',
    'choice',
    'worth',
    'observed_choice',
    'budget',
    'ablations',
    'clean_photos',
    'more_photos',
    'second_backbone',
    'thresholds',
    'ensembles',
    'whole_network',
)


def find_experiment(name: str) -> Experiment:
    """An experiment by its name in `EXPERIMENTS`."""
    # the notebook `observed_choice` is below the modules that run it and write its page
    module = 'observed_choice_page' if name == 'observed_choice' else name
    return import_module(f'.experiments.{module}', __package__).EXPERIMENT


def write_study(tell: Callable[[str], None] = print):
    """Rebuild the setting `outputs` and the parts of README.md beside it, without training.

    Args:
        tell: is given the lines of the report.

    Raises:
        SpmlError: for a damaged `runs.csv`, or a file that cannot be written.
    """
    from . import front, gains, gap, pages, tables

    known = tables.record()
    measured = gains.gains_of_suites(known)
    # these first, since the pages link what is there
    boards.write_boards(known)
    front.write_front(boards=measured)
    gap.write_gap(known, measured)
    for name in EXPERIMENTS:
        find_experiment(name).write(known, measured)
    pages.write_pages(known, tell, measured)
