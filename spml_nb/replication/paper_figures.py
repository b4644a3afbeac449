"""The figures of the papers: their runs, the arrays collected from them, and the pictures."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from .. import drawing
from ..base import settings
from ..base.errors import SpmlError, require_one_of, warn
from ..base.files import write_atomically
from ..runs.config import Config
from ..sweeps import queue
from ..sweeps.search import SUITES
from ..training.evaluation import open_run
from . import figure_drawing, published, run_measurements, tables
from .papers import em_apl_figures, hml_figures, lac_figures, opml_figures, two_way_figures

FIGURES = {
    'hml': hml_figures.FIGURES,
    'opml': opml_figures.FIGURES,
    'lac': lac_figures.FIGURES,
    'two_way': two_way_figures.FIGURES,
    'em_apl': em_apl_figures.FIGURES,
}  # {paper: {number: PaperFigure}}


@lru_cache
def _read_texts(paper: str) -> dict:
    """A paper's part of `assets/figures.yml`: figures and not_drawn, each by number."""
    file = files('spml_nb') / 'assets' / 'figures.yml'
    return yaml.safe_load(file.read_text(encoding='utf-8'))[require_one_of(paper, FIGURES, 'paper')]


def explain_not_drawn(paper: str) -> str:
    """A sentence on the figures of a paper that are not drawn here, with the reasons.

    Raises:
        SpmlError: For an unknown paper.
    """
    reasons = _read_texts(paper)['not_drawn']
    several = len(reasons) > 1 or ' to ' in next(iter(reasons))
    listed = ', '.join(f'{number} ({reason})' for number, reason in reasons.items())
    return f"Not redrawn: Figure{'s' if several else ''} {listed}."


def list_figures(paper: str) -> list[str]:
    """The numbers of a paper's figures that are drawn here.

    Raises:
        SpmlError: For an unknown paper.
    """
    return list(FIGURES[require_one_of(paper, FIGURES, 'paper')])


def _figure(
    paper: str, figure: str | int, suite: str = published.PHOTOS_SUITE
) -> figure_drawing.PaperFigure:
    numbers = list_figures(paper)
    require_one_of(
        suite, (published.PHOTOS_SUITE, 'paper'), f'suite of figure {figure} of {paper!r}'
    )
    return FIGURES[paper][require_one_of(str(figure), numbers, f'figure of {paper!r}')]


def describe_figure(paper: str, figure: str | int) -> dict[str, str]:
    """The texts of a figure.

    Args:
        paper: One of `published.list_papers()`.
        figure: One of `list_figures(paper)`.

    Returns:
        caption, printed (what the paper says of its numbers) and notes (what we chose, and the
        protocol on photos), those that are not empty.

    Raises:
        SpmlError: For an unknown paper or figure.
    """
    spec = _figure(paper, figure)
    texts = _read_texts(paper)['figures'][str(figure)]
    protocol = texts.get('protocol') or _protocol(spec, texts.get('seeds', _SEEDS))
    notes = [*texts.get('notes', []), protocol]
    described = {
        'caption': texts['caption'],
        'printed': texts.get('printed', ''),
        'notes': ' '.join(filter(None, notes)),
    }
    return {name: text for name, text in described.items() if text}


_SEEDS = 'Lines are means over seeds, bands reach from the lowest seed to the highest.'


def _protocol(spec: figure_drawing.PaperFigure, seeds_shown: str) -> str:
    """How the runs of a figure are made on photos, and how its seeds are shown."""
    if not spec.curves or spec.curves[0].start.get('weights') == 'none':
        return ''  # without runs of the suite
    suite = SUITES['photos']
    photos = dict.fromkeys(
        published.find_stand_in(curve.dataset, 'photos') for curve in spec.curves
    )
    text = (
        f"Suite photos: {', '.join(photos)}; a head on frozen features of "
        f"{suite['config']['backbone']}, batches of {suite['config']['batch_size']}; learning rate "
        f"and hyper-parameters that are not varied from a search of {suite['draws']} draws, they "
        'and the epoch chosen by mAP on fully labelled validation images. '
        f"Seeds: {', '.join(map(str, spec.seeds))}."
    )
    return f'{text} {seeds_shown}' if len(spec.seeds) > 1 else text


def figure_command(paper: str, figure: str | int, suite: str) -> str:
    """The command that trains the runs of a figure and collects its arrays.

    Args:
        paper, figure: As in `describe_figure`.
        suite: 'photos' or 'paper'.

    Raises:
        SpmlError: For an unknown paper, figure or suite.
    """
    _figure(paper, figure, suite)
    return f'spml sweep {paper} --figure {figure} --suite {suite}'


@dataclass(frozen=True)
class PlannedRun:
    """A run of a figure.

    Attributes:
        dataset: The paper's data set.
        series: Name of its curve.
        values: Its coordinates on the axes.
        seed: Of observed labels and training.
        search: The runs that choose its configuration.
        config: None while one of them is missing.
    """

    dataset: str
    series: str
    values: tuple
    seed: int
    search: list[Config]
    config: Config | None

    @property
    def name(self) -> str:
        """Its name in the file of arrays."""
        values = [f'{value:g}' for value in self.values]
        return ' | '.join([self.dataset, self.series, *values, f'seed {self.seed}'])

    @property
    def key(self) -> str | None:
        """The key of its configuration, None without one."""
        return self.config and queue.run_key(self.config)


def plan_figure_runs(
    paper: str, figure: str | int, suite: str, runs: pd.DataFrame
) -> list[PlannedRun]:
    """The runs of a figure; empty for the plot of a formula.

    Args:
        paper, figure, suite: As in `figure_command`.
        runs: Finished runs, as from `sweeps.load_finished_runs`.

    Raises:
        SpmlError: As `figure_command`.
    """
    spec = _figure(paper, figure, suite)
    paper_file = published.read_paper(paper)
    planned = []
    for curve in spec.curves:
        fields = published.merge_mappings(
            paper_file.get('config'), curve.start, {'dataset': curve.dataset}
        )
        cell = tables.cell_of_runs(paper, fields) | {'search': paper_file.get('search', {})}
        plan = tables.plan_cell(cell, suite)
        chosen = tables.cell_final_runs(plan, runs, spec.seeds) or [None] * len(spec.seeds)
        for values, changes in curve.points.items():
            for seed, config in zip(spec.seeds, chosen, strict=True):
                point = (curve.dataset, curve.series, values, seed)
                varied = config and _vary(config, changes)
                planned.append(PlannedRun(*point, plan.search, varied))
    return planned


def _vary(chosen: Config, changes: dict) -> Config:
    hparams = chosen.hparams | changes.get('hparams', {})
    return replace(chosen, **(changes | {'hparams': hparams}))


def list_figure_runs(
    paper: str, figure: str | int | None, suite: str, runs: pd.DataFrame
) -> tuple[list[Config], list[Config]]:
    """The runs of a figure, finished or not.

    Args:
        paper, suite, runs: As in `plan_figure_runs`.
        figure: As in `plan_figure_runs`; None for all figures.

    Returns:
        (search runs, runs of the figure with a chosen configuration), each run once.

    Raises:
        SpmlError: As `plan_figure_runs`.
    """
    search, final = {}, {}
    for number in list_figures(paper) if figure is None else [figure]:
        for run in plan_figure_runs(paper, number, suite, runs):
            search |= {queue.run_key(config): config for config in run.search}
            if run.config:
                final[run.key] = run.config
    return list(search.values()), list(final.values())


VERSION = 2  # of the arrays; raise it when `measure` of a figure changes


def find_arrays(paper: str, figure: str | int, suite: str) -> Path:
    """The path of a figure's arrays (.npz), with the picture beside it.

    Args:
        paper, figure, suite: As in `figure_command`.

    Raises:
        SpmlError: As `figure_command`.
    """
    _figure(paper, figure, suite)
    end = '' if suite == 'photos' else f'_{suite}'
    return settings.get_folder('outputs') / paper / f'fig{figure}{end}.npz'


def collect_arrays(paper: str, figure: str | int, suite: str, runs: pd.DataFrame) -> Path | None:
    """Collect a figure's arrays from the finished runs into a file, with a warning for a run that
    cannot be read.

    Args:
        paper, figure, suite, runs: As in `plan_figure_runs`.

    Returns:
        The file; None, and no file, without finished runs.

    Raises:
        SpmlError: As `plan_figure_runs`, or if the file cannot be written.
    """
    file = find_arrays(paper, figure, suite)
    spec = _figure(paper, figure)
    planned = plan_figure_runs(paper, figure, suite, runs)
    previous = _read_previous(file, runs) if spec.measure else {}
    arrays = {}
    for run in planned:
        measured = previous.get((run.name, run.key)) or _measure(spec, run, runs)
        if measured is not None:
            arrays[run.name] = measured
    if planned and not arrays:
        file.unlink(missing_ok=True)
        return None
    datasets = dict.fromkeys(run.dataset for run in planned)
    about = {
        'paper': paper,
        'figure': str(figure),
        'suite': suite,
        'version': VERSION,
        'data': [[dataset, published.find_stand_in(dataset, suite)] for dataset in datasets],
        'parts': {run.name: _describe_run(run, runs) for run in planned if run.name in arrays},
        'missing': [run.name for run in planned if run.name not in arrays],
    }
    figure_drawing.write_figure_arrays(file, figure_drawing.FigureArrays(about, arrays))
    return file


def _describe_run(run: PlannedRun, runs: pd.DataFrame) -> dict:
    exercised = runs.exercised.get(run.key) if 'exercised' in runs else None
    return {
        'dataset': run.dataset,
        'series': run.series,
        'values': run.values,
        'seed': run.seed,
        'key': run.key,
        'exercised': None if pd.isna(exercised) else int(exercised),
    }


def _measure(spec: figure_drawing.PaperFigure, run: PlannedRun, runs: pd.DataFrame) -> dict | None:
    """The arrays of a run, None if it is not finished or its folder is missing."""
    if run.key not in runs.index:
        return None
    if spec.measure is None:
        return runs.loc[run.key, ['test_map', 'val_map']].astype(np.float32).to_dict()
    if spec.observed:
        folder = run_measurements.find_noted_run(run.config).folder
    else:
        folder = settings.get_folder('runs') / runs.at[run.key, 'run']
    if not (folder / 'DONE').is_file():
        return None
    try:
        return spec.measure(open_run(folder))
    except SpmlError as error:
        warn(f'{run.name} is left out: {error}')
        return None


def _read_previous(file: Path, runs: pd.DataFrame) -> dict[tuple[str, str], dict]:
    """{(name of a run, its key): arrays} of finished runs in a file of the same version."""
    if not file.is_file():
        return {}
    about, arrays = figure_drawing.read_figure_arrays(file)
    if about['version'] != VERSION:
        return {}
    return {
        (name, run['key']): arrays[name]
        for name, run in about['parts'].items()
        if run['key'] in runs.index
    }


def sweep_figures(
    paper: str,
    figure: str | int,
    suite: str,
    *,
    dry_run: bool = False,
    tell: Callable[[str], None] = print,
    **launch,
) -> pd.DataFrame:
    """Run what a figure still needs, then collect its arrays.

    Args:
        paper, figure, suite: As in `figure_command`.
        dry_run: Only print how many runs are missing.
        tell: Prints a line.
        launch: jobs, engine and address, as in `sweeps.run`.

    Returns:
        DataFrame as from `sweeps.run`, with a row for each observed run too; for a dry run as from
        `sweeps.plan_runs`.

    Raises:
        SpmlError: As `list_figure_runs`.
    """
    search, _ = list_figure_runs(paper, figure, suite, pd.DataFrame())
    staged = queue.run_stages(
        search,
        lambda runs: list_figure_runs(paper, figure, suite, runs)[1],
        dry_run=dry_run,
        tell=tell,
        **launch,
    )
    todo = _unmeasured(paper, figure, suite, queue.load_finished_runs())
    observed = _figure(paper, figure).observed
    if dry_run:
        count = len(todo) if observed else 0
        tell(f'{count} of these runs are then to be observed, which trains each once more.')
    if dry_run or 'missing' in set(staged.state):
        return staged  # interrupted
    # a run that is in the record but has no folder here is trained again to be measured
    measured = _observe(todo, tell) if observed else queue.run(todo, tell=tell, **launch)
    file = collect_arrays(paper, figure, suite, queue.load_finished_runs())
    tell(f'figure {figure}: {file.name if file else "nothing to draw yet"}')
    return pd.concat([staged, measured], ignore_index=True)


def _unmeasured(paper: str, figure: str | int, suite: str, runs: pd.DataFrame) -> list[Config]:
    """The runs to measure whose arrays are not in the figure's file yet."""
    if _figure(paper, figure).measure is None:
        return []
    previous = _read_previous(find_arrays(paper, figure, suite), runs)
    by_key = {
        run.key: run.config
        for run in plan_figure_runs(paper, figure, suite, runs)
        if run.config and (run.name, run.key) not in previous
    }
    return list(by_key.values())


def _observe(configs: list[Config], tell: Callable) -> pd.DataFrame:
    rows = []
    for k, config in enumerate(configs, 1):
        run = run_measurements.find_noted_run(config)
        message = ''
        if not run.done:
            try:
                run_measurements.note_training(config)
            except SpmlError as error:
                message = str(error)
            failed = f'  failed: {message}' if message else ''
            tell(f'{k}/{len(configs)} observed  {run.folder.name}{failed}')
        state = 'done' if run.done else 'failed'
        rows.append((run.config, f'observed/{run.folder.name}', state, message))
    return pd.DataFrame(rows, columns=['config', 'run', 'state', 'message'])


def draw_paper_figure(paper: str, figure: str | int, suite: str) -> Path | None:
    """Draw a figure from its arrays.

    Args:
        paper, figure, suite: As in `figure_command`.

    Returns:
        The SVG beside the arrays; None if these are not collected yet.

    Raises:
        SpmlError: As `figure_command`, or for a damaged file.
    """
    file = find_arrays(paper, figure, suite)
    if not file.is_file():
        return None
    svg = figure_drawing.draw_figure(
        _figure(paper, figure), figure_drawing.read_figure_arrays(file)
    )
    write_atomically(file.with_suffix('.svg'), lambda path: path.write_bytes(svg))
    return file.with_suffix('.svg')


def draw_paper_png(paper: str, figure: str | int, suite: str) -> bytes | None:
    """A figure as a small PNG for notebooks, as from `drawing.to_png`; None if its arrays are not
    collected yet. Nothing is written.

    Args:
        paper, figure, suite: As in `figure_command`.

    Raises:
        SpmlError: As `draw_paper_figure`.
    """
    file = find_arrays(paper, figure, suite)
    if not file.is_file():
        return None
    collected = figure_drawing.read_figure_arrays(file)
    return drawing.to_png(lambda: figure_drawing.titled_figure(_figure(paper, figure), collected))
