"""The published hyper-parameters of the five papers with their sources, from assets/papers/*.yml."""

from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import chain

from ..base.errors import require_one_of

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
        where: section or table of the paper, or the reason for a choice.
    """

    value: object
    origin: str
    where: str

    @property
    def source(self) -> str:
        "Describe origin and location."
        return ORIGINS[self.origin].format(where=self.where, value=self.value)


@dataclass(frozen=True)
class Paper:
    """The section `presets` of a paper's file.

    An entry is {'value', 'origin', 'where'}, or a list of entries; the last one that applies to a
    data set counts. A value is a single one for all data sets, a list with one per data set, or a
    mapping for some of them. {'value_of': another paper} refers to the value of the same name and
    loss in that paper.

    Args:
        title: first author and short title.
        every: {name: entry} for all losses.
        losses: {loss: {name: entry}}, the paper's method first.
        only_on: {loss: data sets} of losses that are not compared on all of them.
        quoted: {another paper: losses whose results and values are quoted from it}.
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
    """Read the values of a paper.

    Raises:
        SpmlError: for an unknown paper.
    """
    import yaml  # not at the top, because the losses alone work without it

    require_one_of(paper, PAPERS, 'paper')
    text = (files('spml_nb') / 'assets' / 'papers' / f'{paper}.yml').read_text(encoding='utf-8')
    loader = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)  # eight times as fast, if available
    return Paper(**yaml.load(text, loader)['presets'])


def paper_datasets(paper: str) -> list[str]:
    """The data sets of a paper.

    Raises:
        SpmlError: for an unknown paper.
    """
    return read_paper_values(paper).datasets


def paper_losses(paper: str, dataset: str) -> list[str]:
    """The losses in a paper's tables on a data set, the paper's method first.

    Returns:
        Names of registered methods.

    Raises:
        SpmlError: for an unknown paper, or a data set that is not in it.
    """
    require_one_of(dataset, paper_datasets(paper), f'data set of {paper!r}')
    presets = read_paper_values(paper)
    compared = [
        loss for loss in presets.losses if dataset in presets.only_on.get(loss, presets.datasets)
    ]
    return [*compared, *chain.from_iterable(presets.quoted.values())]


def paper_values(paper: str, dataset: str, loss: str) -> dict[str, Value]:
    """Every hyper-parameter of a run of a paper, including those that the paper does not state.

    Returns:
        {name: Value}; a name is a field of `Config` or a hyper-parameter of the loss.

    Raises:
        SpmlError: for a combination that is not in the paper.
    """
    require_one_of(loss, paper_losses(paper, dataset), f'loss of {paper!r} on {dataset!r}')
    presets = read_paper_values(paper)
    for source, quoted in presets.quoted.items():
        if loss in quoted:
            values = paper_values(source, dataset, loss)
            return {name: _as_quoted(value, source) for name, value in values.items()}
    return _values_on(dataset, presets.every | presets.losses[loss], paper, loss)


def paper_values_of_loss(paper: str, loss: str) -> dict[str, dict]:
    """The values that a paper states for one loss rather than for all, on every data set of the
    paper.

    Returns:
        {data set: {name: value}}.
    """
    presets = read_paper_values(paper)
    stated = {}
    for dataset in presets.datasets:
        values = _values_on(dataset, presets.losses[loss], paper, loss)
        stated[dataset] = {name: value.value for name, value in values.items()}
    return stated


def _values_on(dataset: str, entries: dict, paper: str, loss: str) -> dict[str, Value]:
    "The values of all entries that apply to a data set."
    values = {name: _value_on(dataset, e, paper, loss, name) for name, e in entries.items()}
    return {name: value for name, value in values.items() if value is not None}


def _value_on(dataset: str, entry: dict | list, paper: str, loss: str, name: str) -> Value | None:
    "The value of an entry on a data set, None if it does not apply."
    if isinstance(entry, list):
        values = [_value_on(dataset, alternative, paper, loss, name) for alternative in entry]
        return next((v for v in reversed(values) if v is not None), None)
    if 'value_of' in entry:
        other = entry['value_of']
        referred = read_paper_values(other).losses[loss][name]
        value = _value_on(dataset, referred, other, loss, name).value
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
