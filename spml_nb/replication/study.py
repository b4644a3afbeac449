"""The study: its experiments by name, and all pages rebuilt from the table of record."""

# Imports are inside functions, so that the names of experiments are known without loading torch.

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .experiments.core import Experiment

# modules of `experiments`, swept beside the papers' tables and figures and the boards
EXPERIMENTS = (
    'biased',
    'worth',
    'observed_choice',
    'budget',
    'ablations',
    'two_steps',
    'clean_photos',
    'more_photos',
    'second_backbone',
    'thresholds',
    'ensembles',
    'whole_network',
)


def find_experiment(name: str) -> 'Experiment':
    """An experiment by its name in `EXPERIMENTS`."""
    # the notebook `observed_choice` is below the modules that run it and write its page
    module = 'observed_choice_page' if name == 'observed_choice' else name
    return import_module(f'.experiments.{module}', __package__).EXPERIMENT


def write_study(tell: Callable[[str], None] = print):
    """Rebuild the setting `outputs` and the parts of README.md beside it, without training.

    Args:
        tell: Prints a line of the report.

    Raises:
        SpmlError: For a damaged `runs.csv`, or a file that cannot be written.
    """
    from ..sweeps import boards
    from . import front_page, gains, gap_to_full_labels, pages, tables
    from .experiments import budget

    runs = tables.read_recorded_runs()
    measured = gains.gains_of_suites(runs)
    compared = budget.compare_choices(runs)
    # before the pages, which link the files that exist
    boards.write_boards(runs)
    front_page.write_front(runs, measured)
    gap_to_full_labels.write_gap(runs, measured)
    budget.write_budgets(runs, compared)
    for name in EXPERIMENTS:
        find_experiment(name).write(runs, measured)
    pages.write_pages(runs, measured, compared, tell=tell)
