"""Which runs a figure of the papers needs, the arrays collected from them, and the picture drawn from the arrays."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from spml_nb.replication.papers import (
    em_apl_figures,
    hml_figures,
    lac_figures,
    opml_figures,
    two_way_figures,
)

from ..base import settings
from ..base.errors import SpmlError, one_of, warn
from ..base.files import write_atomically
from ..runs.config import Config
from ..sweeps import queue
from ..sweeps.search import SUITES
from ..training.evaluation import open_run
from . import drawing, measuring, published, tables

FIGURES = {
    'hml': hml_figures.FIGURES,
    'opml': opml_figures.FIGURES,
    'lac': lac_figures.FIGURES,
    'two_way': two_way_figures.FIGURES,
    'em_apl': em_apl_figures.FIGURES,
}  # {paper: {number: PaperFigure}}

_DRAWING = 'a drawing without numbers'
NOT_DRAWN = {  # {paper: {numbers: (what they show, why there is nothing to redraw)}}
    'hml': {'1': ('labels and images on a sphere', _DRAWING)},
    'opml': {
        '1': ('the pair of labels that is pushed apart, beside all pairs', _DRAWING),
        '2': ('the loss with its high-rank term', _DRAWING),
    },
    'lac': {
        '1': ('consistency of images beside that of labels', _DRAWING),
        '2': ('the two branches of training', _DRAWING),
    },
    'two_way': {'2': ('the matrix of logits with its two ways', _DRAWING)},
    'em_apl': {
        '1 to 6': ('the figures of the main paper', 'its text is not at hand, only the supplement')
    },
}


def not_drawn(paper: str) -> str:
    """Which figures of a paper are not drawn here, and why.

    Args:
        paper: one of `published.papers()`.

    Returns:
        A sentence.
    """
    each = [
        f'{number} ({what}: {why})'
        for number, (what, why) in NOT_DRAWN[one_of(paper, NOT_DRAWN, 'paper')].items()
    ]
    return f"Not redrawn: Figure{'s' * (len(each) > 1 or ' to ' in each[0])} {', '.join(each)}."


def figures(paper: str) -> list[str]:
    """The figures of a paper that are drawn here.

    Args:
        paper: one of `published.papers()`.

    Returns:
        Their numbers, as str.

    Raises:
        SpmlError: for another paper.
    """
    return list(FIGURES[one_of(paper, FIGURES, 'paper')])


def _figure(paper: str, figure: str | int) -> drawing.PaperFigure:
    numbers = figures(paper)
    return FIGURES[paper][one_of(str(figure), numbers, f'figure of {paper!r}')]


def description(paper: str, figure: str | int) -> dict[str, str]:
    """What a figure shows, what the paper says of it, and what was chosen here.

    Args:
        paper: as in `figures`.
        figure: one of `figures(paper)`.

    Returns:
        caption, printed and notes, where there is something to say; the notes end with the protocol
        on photos.

    Raises:
        SpmlError: for another paper or figure.
    """
    about = _figure(paper, figure)
    texts = about._asdict() | {'notes': f'{about.notes} {_protocol(about)}'.strip()}
    return {name: texts[name] for name in ('caption', 'printed', 'notes') if texts[name]}


def _protocol(about: drawing.PaperFigure) -> str:
    "How the runs of a figure came about on photos, and how its seeds are shown."
    if not about.curves or about.curves[0].start.get('weights') == 'none':
        return ''  # not of the suite
    given, data = (
        SUITES['photos'],
        dict.fromkeys(published.stand_in(c.dataset, 'photos') for c in about.curves),
    )
    seeds = ', '.join(map(str, about.seeds)) + (
        f'. {about.together}' if len(about.seeds) > 1 else '.'
    )
    return (
        f"Suite photos: {', '.join(data)}; a head on frozen features of "
        f"{given['config']['backbone']}, batches of {given['config']['batch_size']}; learning rate "
        f"and hyper-parameters that are not varied from a search of {given['draws']} draws, they "
        "and the epoch chosen by mAP on fully labelled validation images. "
        f'Seeds: {seeds}'
    )


def command(paper: str, figure: str | int, suite: str) -> str:
    """The command that trains what a figure needs and collects its arrays.

    Args:
        paper, figure: as in `description`.
        suite: 'photos' or 'paper'.

    Returns:
        A command line.

    Raises:
        SpmlError: as `description`, or for another suite.
    """
    _figure(paper, figure)
    one_of(suite, (published.SUITE, 'paper'), f'suite of figure {figure} of {paper!r}')
    return f'spml sweep {paper} --figure {figure} --suite {suite}'


class Part(NamedTuple):
    """A run of a figure.

    Attributes:
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
        "What it is called in the file of arrays."
        return ' | '.join(
            [self.dataset, self.series, *(f'{v:g}' for v in self.values), f'seed {self.seed}']
        )

    @property
    def key(self) -> str | None:
        "The key of its run, None while there is no configuration."
        return self.config and queue.key(self.config)


def parts(paper: str, figure: str | int, suite: str, finished: pd.DataFrame) -> list[Part]:
    """The runs behind a figure, with their place in it.

    Args:
        paper, figure, suite: as in `command`.
        finished: runs, as from `sweeps.finished`.

    Returns:
        The parts. There are none in a figure that needs no run.

    Raises:
        SpmlError: for another paper, figure or suite.
    """
    command(paper, figure, suite)
    about, given, every = _figure(paper, figure), published.read(paper), []
    for dataset, series, start, points in about.curves:
        config = published.merge(given.get('config'), start, {'dataset': dataset})
        plan = tables.plan(
            {
                'paper': paper,
                'config': config,
                'dataset': dataset,
                'pretraining': None,
                'no_run': '',
                'search': given.get('search', {}),
            },
            suite,
        )
        chosen = tables.finals(plan, finished, about.seeds) or [None] * len(about.seeds)
        every += [
            Part(dataset, series, values, seed, plan.search, config and _varied(config, changes))
            for values, changes in points.items()
            for seed, config in zip(about.seeds, chosen, strict=True)
        ]
    return every


def _varied(chosen: Config, changes: dict) -> Config:
    return replace(
        chosen, **{**changes, 'hparams': {**chosen.hparams, **changes.get('hparams', {})}}
    )


def needed(
    paper: str, figure: str | int | None, suite: str, finished: pd.DataFrame
) -> tuple[list[Config], list[Config]]:
    """The runs of a figure, done or not.

    Args:
        paper, suite, finished: as in `parts`.
        figure: as in `parts`; None for all figures.

    Returns:
        The runs of the searches, and the runs of the figure that the finished searches have chosen;
        each run once.

    Raises:
        SpmlError: as `parts`.
    """
    numbers = figures(paper) if figure is None else [figure]
    every = [part for n in numbers for part in parts(paper, n, suite, finished)]
    search = {queue.key(c): c for part in every for c in part.search}
    return list(search.values()), list(
        {part.key: part.config for part in every if part.config}.values()
    )


VERSION = 2  # raise it when arrays would come out differently


def arrays_file(paper: str, figure: str | int, suite: str) -> Path:
    """Where a figure's arrays lie.

    Args:
        paper, figure, suite: as in `command`.

    Returns:
        An .npz file; the picture lies beside it.

    Raises:
        SpmlError: as `command`.
    """
    command(paper, figure, suite)
    return (
        settings.path('outputs')
        / paper
        / f'fig{figure}{"" if suite == "photos" else "_" + suite}.npz'
    )


def collect(paper: str, figure: str | int, suite: str, finished: pd.DataFrame) -> Path | None:
    """Gather a figure's arrays from the finished runs into a file. It only warns of a run that
    cannot be read.

    Args:
        paper, figure, suite, finished: as in `parts`.

    Returns:
        The file, None when there is nothing yet; then there is no file either.

    Raises:
        SpmlError: as `parts`, or if the file cannot be written.
    """
    file, about = arrays_file(paper, figure, suite), _figure(paper, figure)
    every, kept, places, arrays = (
        parts(paper, figure, suite, finished),
        _kept(file, finished),
        {},
        {},
    )
    for part in every:
        found = (kept.get((part.name, part.key)) if about.measure else None) or _measured(
            about, part, finished
        )
        if found is None:
            continue
        acted = finished.exercised.get(part.key) if 'exercised' in finished else None
        arrays[part.name] = found
        places[part.name] = {
            'dataset': part.dataset,
            'series': part.series,
            'values': part.values,
            'seed': part.seed,
            'key': part.key,
            'exercised': None if pd.isna(acted) else int(acted),
        }
    if every and not arrays:
        file.unlink(missing_ok=True)
        return None
    data = [
        [d, published.stand_in(d, suite)] for d in dict.fromkeys(part.dataset for part in every)
    ]
    drawing.write_collected(
        file,
        drawing.Collected(
            {
                'paper': paper,
                'figure': str(figure),
                'suite': suite,
                'version': VERSION,
                'data': data,
                'parts': places,
                'missing': [part.name for part in every if part.name not in arrays],
            },
            arrays,
        ),
    )
    return file


def _measured(about: drawing.PaperFigure, part: Part, finished: pd.DataFrame) -> dict | None:
    "The arrays of a part, None while its run or what is left of it is missing."
    if part.key not in finished.index:
        return None
    if about.measure is None:
        return finished.loc[part.key, ['test_map', 'val_map']].astype(np.float32).to_dict()
    folder = (
        measuring.observed_run(part.config).folder
        if about.observed
        else settings.path('runs') / finished.at[part.key, 'run']
    )
    if not (folder / 'DONE').is_file():
        return None
    try:
        return about.measure(open_run(folder))
    except SpmlError as error:
        warn(f'{part.name} is left out: {error}')


def _kept(file: Path, finished: pd.DataFrame) -> dict[tuple[str, str], dict]:
    "What the file has of finished runs: {(name of the part, key of its run): arrays}."
    found = drawing.read_collected(file) if file.is_file() else None
    if not found or found.about['version'] != VERSION:
        return {}
    return {
        (name, part['key']): found.arrays[name]
        for name, part in found.about['parts'].items()
        if part['key'] in finished.index
    }


def sweep(
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
        paper, figure, suite: as in `command`.
        dry_run: only say how much there is.
        tell: is given the lines.
        launch: jobs, engine and address, as in `sweeps.run`.

    Returns:
        As from `sweeps.run`, with a row for each observed run too; as from `sweeps.plan` for a dry
        run.

    Raises:
        SpmlError: as `needed`.
    """

    def final(known):
        return needed(paper, figure, suite, known)[1]

    rows = [
        queue.staged(
            needed(paper, figure, suite, pd.DataFrame())[0],
            final,
            dry_run=dry_run,
            tell=tell,
            **launch,
        )
    ]
    finished = queue.finished()
    seen, trained = (
        _uncollected(paper, figure, suite, finished, observed) for observed in (True, False)
    )
    if dry_run:
        tell(f'{len(seen)} of these runs are then to be observed, which trains each once more.')
    if dry_run or 'missing' in set(rows[0].state):
        return rows[0]  # interrupted
    # runs that only the record knows are trained again where their networks are looked at
    rows += [queue.run(trained.values(), tell=tell, **launch), _observe(seen, tell)]
    file = collect(paper, figure, suite, queue.finished())
    tell(f'figure {figure}: {file.name if file else "nothing to draw yet"}')
    return pd.concat(rows, ignore_index=True)


def _uncollected(
    paper: str, figure: str | int, suite: str, finished: pd.DataFrame, observed: bool
) -> dict[str, Config]:
    "The runs, by key, that are to be measured and whose arrays are not in the figure's file yet."
    about = _figure(paper, figure)
    if about.measure is None or about.observed != observed:
        return {}
    kept = _kept(arrays_file(paper, figure, suite), finished)
    return {
        p.key: p.config
        for p in parts(paper, figure, suite, finished)
        if p.config and (p.name, p.key) not in kept
    }


def _observe(configs: dict[str, Config], tell: Callable) -> pd.DataFrame:
    rows = []
    for k, config in enumerate(configs.values(), 1):
        run, message = measuring.observed_run(config), ''
        if not run.done:
            try:
                measuring.observe(config)
            except SpmlError as error:
                message = str(error)
            tell(
                f'{k}/{len(configs)} observed  '
                f'{run.folder.name}{"  failed: " + message if message else ""}'
            )
        rows.append(
            (run.config, f'observed/{run.folder.name}', 'done' if run.done else 'failed', message)
        )
    return pd.DataFrame(rows, columns=['config', 'run', 'state', 'message'])


def draw(paper: str, figure: str | int, suite: str) -> Path | None:
    """Draw a figure from its arrays.

    Args:
        paper, figure, suite: as in `command`.

    Returns:
        The SVG, beside the arrays; None when there are none: `command` says what fills it.

    Raises:
        SpmlError: as `command`, or for a damaged file.
    """
    file = arrays_file(paper, figure, suite)
    if not file.is_file():
        return None
    svg = drawing.draw(_figure(paper, figure), drawing.read_collected(file))
    write_atomically(file.with_suffix('.svg'), lambda path: path.write_bytes(svg))
    return file.with_suffix('.svg')
