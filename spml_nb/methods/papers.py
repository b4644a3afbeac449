"""Every hyper-parameter that the five papers give, with its source, from assets/papers/*.yml."""

from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files

from ..base.errors import one_of

ORIGINS = {
    'paper': 'paper: {where}',
    'code': "authors' code: {where}",
    'cole': 'Cole et al. 2021: {where}',
    'cited': 'cited: {where}',
    'chosen': 'not stated ({where}) -> chosen here: {value}',
    'lost': 'lost ({where}) -> chosen here: {value}',
}


@dataclass(frozen=True)
class Value:
    """One hyper-parameter on a data set, and its source.

    Args:
        origin: a key of `ORIGINS`.
        where: section or table of the paper, or what a choice rests on.
    """

    value: object
    origin: str
    where: str

    @property
    def source(self) -> str:
        "Origin and place in words."
        return ORIGINS[self.origin].format(where=self.where, value=self.value)


@dataclass(frozen=True)
class Paper:
    """The section `presets` of a paper's file.

    An entry is {'value', 'origin', 'where'}, or a list of such of which the last that holds
    counts. Its value is one for all data sets, a list with one for each, or a mapping for some of
    them. {'value_of': another paper} takes the value of the same name and loss from there.

    Args:
        title: first author and short title.
        every: {name: entry} for all losses.
        losses: {loss: {name: entry}}, the paper's own first.
        only_on: {loss: data sets} of losses that are not compared on all of them.
        quoted: {another paper: losses whose results and values are quoted from there}.
    """

    title: str
    datasets: list[str]
    every: dict
    losses: dict[str, dict]
    only_on: dict[str, list] = field(default_factory=dict)
    quoted: dict[str, list] = field(default_factory=dict)


PAPERS = ('hml', 'em_apl', 'opml', 'lac', 'two_way')


@cache
def read_paper_values(paper: str) -> Paper:
    "What the file of one of `PAPERS` states."
    import yaml  # here, because the losses alone do without it

    text = (files('spml_nb') / 'assets' / 'papers' / f'{paper}.yml').read_text(encoding='utf-8')
    loader = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)  # eight times as fast, where it is there
    return Paper(**yaml.load(text, loader)['presets'])


def paper_datasets(paper: str) -> list[str]:
    """The data sets of a paper.

    Raises:
        SpmlError: for an unknown paper.
    """
    return read_paper_values(one_of(paper, PAPERS, 'paper')).datasets


def paper_losses(paper: str, dataset: str) -> list[str]:
    """The losses that a paper's tables have on a data set, its own first.

    Returns:
        Names of registered methods.

    Raises:
        SpmlError: for an unknown paper or a data set that it does not have.
    """
    one_of(dataset, paper_datasets(paper), f'data set of {paper!r}')
    presets = read_paper_values(paper)
    compared = [
        loss for loss in presets.losses if dataset in presets.only_on.get(loss, presets.datasets)
    ]
    return compared + [loss for quoted in presets.quoted.values() for loss in quoted]


def paper_values(paper: str, dataset: str, loss: str) -> dict[str, Value]:
    """Every hyper-parameter that the sources give for a run of a paper, or that they have lost.

    Returns:
        {name: Value}; a name is a field of `Config` or a hyper-parameter of the loss.

    Raises:
        SpmlError: for a combination that the paper does not have.
    """
    one_of(loss, paper_losses(paper, dataset), f'loss of {paper!r} on {dataset!r}')
    for source, quoted in read_paper_values(paper).quoted.items():
        if loss in quoted:
            return {
                name: _as_quoted(value, source)
                for name, value in paper_values(source, dataset, loss).items()
            }
    return {
        name: value
        for name, entry in (
            read_paper_values(paper).every | read_paper_values(paper).losses[loss]
        ).items()
        if (value := _on(dataset, entry, paper, loss, name)) is not None
    }


def paper_values_of_loss(paper: str, loss: str) -> dict[str, dict]:
    """What a paper states of one loss and not of all, also for data sets on which it does not
    compare it.

    Returns:
        {data set: {name: value}}.
    """
    stated = {}
    for dataset in paper_datasets(paper):
        values = {
            name: _on(dataset, entry, paper, loss, name)
            for name, entry in read_paper_values(paper).losses[loss].items()
        }
        stated[dataset] = {name: v.value for name, v in values.items() if v is not None}
    return stated


def _on(dataset: str, entry: dict | list, paper: str, loss: str, name: str) -> Value | None:
    "The value of an entry on a data set, None where it does not hold."
    if isinstance(entry, list):
        values = [_on(dataset, one, paper, loss, name) for one in entry]
        return next((v for v in reversed(values) if v is not None), None)
    if 'value_of' in entry:
        other = entry['value_of']
        value = _on(dataset, read_paper_values(other).losses[loss][name], other, loss, name).value
    else:
        value = entry['value']
    if isinstance(value, list):
        value = value[paper_datasets(paper).index(dataset)]
    elif isinstance(value, dict):
        value = value.get(dataset)
    return None if value is None else Value(value, entry['origin'], entry['where'])


def _as_quoted(value: Value, paper: str) -> Value:
    if value.origin != 'paper':
        return value
    return replace(value, origin='cited', where=f'as in {paper}, {value.where}')
