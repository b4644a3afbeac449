"""The whole study: its experiments by name, and all pages rebuilt from the record."""

from collections.abc import Callable

from ..sweeps import search
from . import biased, choice, front, gains, observed_choice, pages, tables, worth

EXPERIMENTS = {
    'biased': biased.EXPERIMENT,
    'choice': choice.EXPERIMENT,
    'worth': worth.EXPERIMENT,
    'observed_choice': observed_choice.EXPERIMENT,
}  # beside the papers' tables and figures and the boards of all methods


def write(tell: Callable[[str], None] = print):
    """Rebuild the setting `outputs` and the parts of README.md beside it, without training.

    Args:
        tell: is given the lines of the report.

    Raises:
        SpmlError: for a damaged `runs.csv`, or a file that cannot be written.
    """
    known = tables.record()
    search.boards(known)  # first, since the pages link what is there
    measured = gains.of_suites(known)
    pages.write(known, tell, measured)
    front.write(boards=measured)
    for experiment in EXPERIMENTS.values():
        experiment.write(known, measured)
