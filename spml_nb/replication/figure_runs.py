"""What runs a figure of the papers needs, the arrays collected from them, and its picture."""

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
from ..base.errors import SpmlError, one_of, warn
from ..base.files import write_atomically
from ..runs.config import Config
from ..sweeps import queue
from ..sweeps.search import SUITES
from ..training.evaluation import open_run
from . import figures, measuring, published, tables
from .papers import em_apl_figures, hml_figures, lac_figures, opml_figures, two_way_figures

FIGURES = {
    'hml': hml_figures.FIGURES,
    'opml': opml_figures.FIGURES,
    'lac': lac_figures.FIGURES,
    'two_way': two_way_figures.FIGURES,
    'em_apl': em_apl_figures.FIGURES,
}  # {paper: {number: PaperFigure}}


@lru_cache
def _texts(paper: str) -> dict:
    """figures and not_drawn, {number: words} each, as in `assets/figures.yml`."""
    file = files('spml_nb') / 'assets' / 'figures.yml'
    return yaml.safe_load(file.read_text(encoding='utf-8'))[one_of(paper, FIGURES, 'paper')]


def explain_not_drawn(paper: str) -> str:
    """Which figures of a paper are not drawn here, and why, in a sentence.

    Raises:
        SpmlError: for another paper.
    """
    reasons = _texts(paper)['not_drawn']
    several = len(reasons) > 1 or ' to ' in next(iter(reasons))
    listed = ', '.join(f'{number} ({reason})' for number, reason in reasons.items())
    return f"Not redrawn: Figure{'s' if several else ''} {listed}."


def list_figures(paper: str) -> list[str]:
    """The numbers of the figures of a paper that are drawn here.

    Raises:
        SpmlError: for another paper.
    """
    return list(FIGURES[one_of(paper, FIGURES, 'paper')])


def _figure(paper: str, figure: str | int) -> figures.PaperFigure:
    numbers = list_figures(paper)
    return FIGURES[paper][one_of(str(figure), numbers, f'figure of {paper!r}')]


def describe_figure(paper: str, figure: str | int) -> dict[str, str]:
    """What a figure shows, what the paper says of it, and what was chosen here.

    Args:
        paper: one of `published.list_papers()`.
        figure: one of `list_figures(paper)`.

    Returns:
        caption, printed and notes, where there is something to say; the notes end with the protocol
        on photos.

    Raises:
        SpmlError: for another paper or figure.
    """
    spec = _figure(paper, figure)
    texts = _texts(paper)['figures'][str(figure)]
    notes = [*texts.get('notes', []), _protocol(spec, texts.get('seeds', _SEEDS))]
    every = {
        'caption': texts['caption'],
        'printed': texts.get('printed', ''),
        'notes': ' '.join(filter(None, notes)),
    }
    return {name: text for name, text in every.items() if text}


_SEEDS = 'Lines are means over seeds, bands reach from the lowest seed to the highest.'


def _protocol(spec: figures.PaperFigure, seeds_shown: str) -> str:
    """How the runs of a figure came about on photos, and how its seeds are shown."""
    if not spec.curves or spec.curves[0].start.get('weights') == 'none':
        return ''  # not of the suite
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
    """The command that trains what a figure needs and collects its arrays.

    Args:
        paper, figure: as in `describe_figure`.
        suite: 'photos' or 'paper'.

    Raises:
        SpmlError: as `describe_figure`, or for another suite.
    """
    _figure(paper, figure)
    one_of(suite, (published.SUITE, 'paper'), f'suite of figure {figure} of {paper!r}')
    return f'spml sweep {paper} --figure {figure} --suite {suite}'


@dataclass(frozen=True)
class PlannedRun:
    """A run of a figure.

    Args:
        dataset: the paper's name of the data set.
        series: the curve it belongs to.
        values: its place on the axes.
        seed: of its observed labels and training.
        search: the runs that choose its configuration.
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
        """What it is called in the file of arrays."""
        values = [f'{value:g}' for value in self.values]
        return ' | '.join([self.dataset, self.series, *values, f'seed {self.seed}'])

    @property
    def key(self) -> str | None:
        """The key of its run, None while there is no configuration."""
        return self.config and queue.key(self.config)


def plan_figure_runs(
    paper: str, figure: str | int, suite: str, finished: pd.DataFrame
) -> list[PlannedRun]:
    """The runs behind a figure, with their place in it.

    Args:
        paper, figure, suite: as in `figure_command`.
        finished: runs, as from `sweeps.finished`.

    Returns:
        None for a figure that needs no run.

    Raises:
        SpmlError: for another paper, figure or suite.
    """
    figure_command(paper, figure, suite)
    spec = _figure(paper, figure)
    paper_file = published.read_paper(paper)
    runs = []
    for curve in spec.curves:
        config = published.merge_mappings(
            paper_file.get('config'), curve.start, {'dataset': curve.dataset}
        )
        cell = tables.cell_of_runs(paper, config) | {'search': paper_file.get('search', {})}
        plan = tables.plan_cell(cell, suite)
        chosen = tables.cell_final_runs(plan, finished, spec.seeds) or [None] * len(spec.seeds)
        for values, changes in curve.points.items():
            for seed, config in zip(spec.seeds, chosen, strict=True):
                config = config and _varied(config, changes)
                place = (curve.dataset, curve.series, values, seed)
                runs.append(PlannedRun(*place, plan.search, config))
    return runs


def _varied(chosen: Config, changes: dict) -> Config:
    hparams = chosen.hparams | changes.get('hparams', {})
    return replace(chosen, **(changes | {'hparams': hparams}))


def list_figure_runs(
    paper: str, figure: str | int | None, suite: str, finished: pd.DataFrame
) -> tuple[list[Config], list[Config]]:
    """The runs of a figure, done or not.

    Args:
        paper, suite, finished: as in `plan_figure_runs`.
        figure: as in `plan_figure_runs`; None for all figures.

    Returns:
        The runs of the searches, and the runs of the figure that the finished searches have chosen;
        each run once.

    Raises:
        SpmlError: as `plan_figure_runs`.
    """
    search, final = {}, {}
    for number in list_figures(paper) if figure is None else [figure]:
        for run in plan_figure_runs(paper, number, suite, finished):
            search |= {queue.key(config): config for config in run.search}
            if run.config:
                final[run.key] = run.config
    return list(search.values()), list(final.values())


VERSION = 2  # raise it when arrays would come out differently


def find_arrays(paper: str, figure: str | int, suite: str) -> Path:
    """The .npz file of a figure's arrays; the picture lies beside it.

    Args:
        paper, figure, suite: as in `figure_command`.

    Raises:
        SpmlError: as `figure_command`.
    """
    figure_command(paper, figure, suite)
    end = '' if suite == 'photos' else f'_{suite}'
    return settings.path('outputs') / paper / f'fig{figure}{end}.npz'


def collect_arrays(
    paper: str, figure: str | int, suite: str, finished: pd.DataFrame
) -> Path | None:
    """Gather a figure's arrays from the finished runs into a file. It only warns of a run that
    cannot be read.

    Args:
        paper, figure, suite, finished: as in `plan_figure_runs`.

    Returns:
        The file, None when there is nothing yet; then there is no file either.

    Raises:
        SpmlError: as `plan_figure_runs`, or if the file cannot be written.
    """
    file = find_arrays(paper, figure, suite)
    spec = _figure(paper, figure)
    runs = plan_figure_runs(paper, figure, suite, finished)
    collected = _collected_before(file, finished) if spec.measure else {}
    arrays = {}
    for run in runs:
        measured = collected.get((run.name, run.key)) or _measured(spec, run, finished)
        if measured is not None:
            arrays[run.name] = measured
    if runs and not arrays:
        file.unlink(missing_ok=True)
        return None
    datasets = dict.fromkeys(run.dataset for run in runs)
    about = {
        'paper': paper,
        'figure': str(figure),
        'suite': suite,
        'version': VERSION,
        'data': [[dataset, published.find_stand_in(dataset, suite)] for dataset in datasets],
        'parts': {run.name: _place(run, finished) for run in runs if run.name in arrays},
        'missing': [run.name for run in runs if run.name not in arrays],
    }
    figures.write_figure_arrays(file, figures.FigureArrays(about, arrays))
    return file


def _place(run: PlannedRun, finished: pd.DataFrame) -> dict:
    acted = finished.exercised.get(run.key) if 'exercised' in finished else None
    return {
        'dataset': run.dataset,
        'series': run.series,
        'values': run.values,
        'seed': run.seed,
        'key': run.key,
        'exercised': None if pd.isna(acted) else int(acted),
    }


def _measured(spec: figures.PaperFigure, run: PlannedRun, finished: pd.DataFrame) -> dict | None:
    """The arrays of a run, None while it or what is left of it is missing."""
    if run.key not in finished.index:
        return None
    if spec.measure is None:
        return finished.loc[run.key, ['test_map', 'val_map']].astype(np.float32).to_dict()
    if spec.observed:
        folder = measuring.find_noted_run(run.config).folder
    else:
        folder = settings.path('runs') / finished.at[run.key, 'run']
    if not (folder / 'DONE').is_file():
        return None
    try:
        return spec.measure(open_run(folder))
    except SpmlError as error:
        warn(f'{run.name} is left out: {error}')


def _collected_before(file: Path, finished: pd.DataFrame) -> dict[tuple[str, str], dict]:
    """What the file has of finished runs: {(name in the figure, key of the run): arrays}."""
    if not file.is_file():
        return {}
    about, arrays = figures.read_figure_arrays(file)
    if about['version'] != VERSION:
        return {}
    return {
        (name, run['key']): arrays[name]
        for name, run in about['parts'].items()
        if run['key'] in finished.index
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
        paper, figure, suite: as in `figure_command`.
        dry_run: only say how much there is.
        tell: is given the lines.
        launch: jobs, engine and address, as in `sweeps.run`.

    Returns:
        As from `sweeps.run`, with a row for each observed run too; as from `sweeps.plan_runs` for a
        dry run.

    Raises:
        SpmlError: as `list_figure_runs`.
    """
    search, _ = list_figure_runs(paper, figure, suite, pd.DataFrame())
    staged = queue.run_stages(
        search,
        lambda finished: list_figure_runs(paper, figure, suite, finished)[1],
        dry_run=dry_run,
        tell=tell,
        **launch,
    )
    todo = _unmeasured(paper, figure, suite, queue.finished())
    observed = _figure(paper, figure).observed
    if dry_run:
        count = len(todo) if observed else 0
        tell(f'{count} of these runs are then to be observed, which trains each once more.')
    if dry_run or 'missing' in set(staged.state):
        return staged  # interrupted
    # runs that only the record has are trained again where their networks are looked at
    again = _observe(todo, tell) if observed else queue.run(todo, tell=tell, **launch)
    file = collect_arrays(paper, figure, suite, queue.finished())
    tell(f'figure {figure}: {file.name if file else "nothing to draw yet"}')
    return pd.concat([staged, again], ignore_index=True)


def _unmeasured(paper: str, figure: str | int, suite: str, finished: pd.DataFrame) -> list[Config]:
    """The runs that are to be measured and whose arrays are not in the figure's file yet."""
    if _figure(paper, figure).measure is None:
        return []
    collected = _collected_before(find_arrays(paper, figure, suite), finished)
    by_key = {
        run.key: run.config
        for run in plan_figure_runs(paper, figure, suite, finished)
        if run.config and (run.name, run.key) not in collected
    }
    return list(by_key.values())


def _observe(configs: list[Config], tell: Callable) -> pd.DataFrame:
    rows = []
    for k, config in enumerate(configs, 1):
        run = measuring.find_noted_run(config)
        message = ''
        if not run.done:
            try:
                measuring.note_training(config)
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
        paper, figure, suite: as in `figure_command`.

    Returns:
        The SVG, beside the arrays; None when there are none: `figure_command` says what fills it.

    Raises:
        SpmlError: as `figure_command`, or for a damaged file.
    """
    file = find_arrays(paper, figure, suite)
    if not file.is_file():
        return None
    svg = figures.draw_figure(_figure(paper, figure), figures.read_figure_arrays(file))
    write_atomically(file.with_suffix('.svg'), lambda path: path.write_bytes(svg))
    return file.with_suffix('.svg')


def draw_paper_png(paper: str, figure: str | int, suite: str) -> bytes | None:
    """A figure as a small PNG, for notebooks; nothing is written.

    Args:
        paper, figure, suite: as in `figure_command`.

    Returns:
        As from `drawing.to_png`; None without arrays.

    Raises:
        SpmlError: as `draw_paper_figure`.
    """
    file = find_arrays(paper, figure, suite)
    if not file.is_file():
        return None
    collected = figures.read_figure_arrays(file)
    return drawing.to_png(lambda: figures.titled_figure(_figure(paper, figure), collected))
