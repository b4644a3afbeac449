"""Read the fields of a configuration from YAML, from the command line, or from a recorded run."""

import difflib
import re
import typing
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import yaml

from ..base import settings
from ..base.errors import SpmlError
from ..base.files import require_regular_file
from ..data.dataset import exclude_option
from . import record
from .config import Config, class_names, complete_fields, resolve, science_key
from .folder import read_json


def gather_fields(
    file: str | None = None,
    texts: Iterable[str] = (),
    pairs: Iterable[tuple[str, str]] = (),
    like: str | None = None,
) -> dict:
    """Merge fields from several sources. Later sources win; hyper-parameters are merged one by one.

    Args:
        file: a YAML file of fields.
        texts: YAML mappings, such as 'hparams: {alpha: 0.1}'.
        pairs: as in `parse_fields`.
        like: name or key of a recorded run, whose configuration all other sources change.

    Returns:
        Keyword arguments of a `Config`.

    Raises:
        SpmlError: for an unreadable file or value, or an unknown run.
    """
    fields = _read_file(file) if file else {}
    for text in texts:
        form = "-y 'name: value', such as -y 'hparams: {alpha: 0.1}'"
        fields = _merge(fields, _read_mapping(text, form))
    fields = _merge(fields, parse_fields(pairs))
    return _change(_recorded_fields(like, fields), fields) if like else fields


def parse_fields(pairs: Iterable[tuple[str, str]]) -> dict:
    """Fields from names and values of the command line.

    Args:
        pairs: name and value. A value is read as YAML, but for a field of text or numbers, scalars
            stay text.

    Returns:
        Keyword arguments of a `Config`. Hyper-parameters of several pairs are merged.

    Raises:
        SpmlError: for an unreadable value, or a repeated name.
    """
    fields, texts = {}, {}
    for name, text in pairs:
        if name in texts and name != 'hparams':
            raise _repeated_error(name, [texts[name], text])
        texts[name] = text
        fields = _merge(fields, {name: _parse_value(name, text)})
    return fields


def _repeated_error(name: str, texts: list[str]) -> SpmlError:
    remedy = 'Give it once.'
    if name == 'exclude':
        classes = [str(c) for text in texts for c in class_names(_parse_value(name, text))]
        remedy = f'Give it once, with all names: `{exclude_option(classes)}`.'
    return SpmlError(
        f'-p {name} is given twice, as {texts[0]!r} and as {texts[1]!r}; only one would count. '
        f'{remedy}'
    )


def _parse_value(name: str, text: str):
    hint = Config.__annotations__.get(name)
    kinds = {hint, *typing.get_args(hint)}
    if name == 'exclude' and not text.lstrip().startswith('['):
        return text  # a class may be called null
    if str in kinds and not text.isprintable():
        return text  # file names that are not UTF-8 cannot be YAML
    form = (
        f"""it as -p {name} "'{text}'" if it is a text, or as -p {name} '[a, b]' if it is a list"""
    )
    value = _read_yaml(text, form)
    if kinds & {str, tuple, int, float}:
        has_comment = ' #' in text and text[0] not in '\'"['  # names may contain #
        if has_comment or not isinstance(value, str | list | dict | None):
            return text  # Config reads 010 as 10, YAML as 8
    if isinstance(value, list | dict):
        _refuse_misread(text)
    return value


def _merge(fields: dict, more: dict) -> dict:
    "Update fields by others, with hyper-parameters one by one."
    merged = fields | more
    old, new = fields.get('hparams'), more.get('hparams')
    if isinstance(old, dict) and isinstance(new, dict):
        merged['hparams'] = old | new
    return merged


# ---- YAML


def _read_file(file: str) -> dict:
    try:
        text = require_regular_file(Path(file)).read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError) as error:
        raise SpmlError(
            f'{file} cannot be read: {error}. Name a file with lines such as `loss: em`.'
        ) from error
    return _read_mapping(text, 'lines such as `loss: em`', file)


def _read_mapping(text: str, form: str, file: str = '') -> dict:
    fields = _read_yaml(text, form, file)
    _refuse_misread(text, file)
    if isinstance(fields, dict) and all(isinstance(name, str) for name in fields):
        return fields
    raise SpmlError(f'{file or repr(text)} holds no fields. Write {form}.')


def _read_yaml(text: str, form: str, file: str = ''):
    "Parse YAML. form: the expected form, for the error message; file: the source of the text."
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise ValueError(
                'it uses an alias (*name), by which a short text may expand to an endless one'
            )
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: impossible dates
        why = f": {' '.join(str(error).split())}" if file else ''
        raise SpmlError(
            f'{file or repr(text)} cannot be read as YAML{why}. Write {form}.'
        ) from error


# octal and sexagesimal numbers
_MISREAD = re.compile(r'[-+]?(0[0-7_]+|[1-9][0-9_]*(:[0-5]?[0-9])+)')


def _refuse_misread(text: str, file: str = ''):
    "Refuse numbers that YAML 1.1 reads unexpectedly: 010 as 8, 1:30 as 90."
    for event in yaml.parse(text, yaml.SafeLoader):
        is_plain = isinstance(event, yaml.ScalarEvent) and event.style is None
        if is_plain and _MISREAD.fullmatch(event.value):
            raise SpmlError(
                f'{file or repr(text)} holds {event.value}, which YAML reads as '
                f'{yaml.safe_load(event.value)}. Write a number without a leading 0 and without a '
                f"colon, or '{event.value}' in quotation marks for a text."
            )


# ---- recorded runs


def _recorded_fields(name: str, changes: dict) -> dict:
    """The fields of a run on disk or in the table of record, without those that depend on its
    machine. changes: fields that will replace some of them.
    """
    file = settings.get_folder('outputs') / 'runs.csv'
    lines = pd.DataFrame(columns=['run', 'key'])
    if file.is_file():
        lines = record.read_record(file, dtype=str, keep_default_na=False)
    run = _find_run(name, lines, file)
    config_file = settings.get_folder('runs') / run / 'config.json'
    if config_file.is_file():
        fields = complete_fields(read_json(config_file, ('loss', 'dataset', 'hparams')))
        machine_fields = {'device'}
    else:
        line = lines[lines.run == run].iloc[0].to_dict()
        fields = vars(replace(record.parse_recorded_config(line), device=None))
        machine_fields = {'device', 'root'}
        # the record has the name of a folder of photos, but not its path
        if 'dataset' not in changes and science_key(resolve(Config(**fields))) != line['key']:
            raise SpmlError(
                f"{name} was trained on other photos or labels than {line['dataset']!r} has here. "
                'Give theirs: -p dataset FOLDER.'
            )
    return {
        field: value
        for field, value in fields.items()
        if field in Config.__annotations__ and field not in machine_fields
    }


def _find_run(name: str, lines: pd.DataFrame, file: Path) -> str:
    "The name of a run's folder, from its name or key; runs on disk win over those in `lines`."
    tables = (record.load(), lines)
    runs = pd.concat([table.reindex(columns=['run', 'key']) for table in tables])
    matches = runs.run[(runs.run == name) | (runs.key == name)]
    if len(matches):
        return matches.iloc[0]
    similar = difflib.get_close_matches(name, [*runs.run, *runs.key], 3, 0.5)
    guess = f"Similar: {', '.join(similar)}. " if similar else ''
    raise SpmlError(
        f'no recorded run {name!r} in {file} or {settings.get_folder("runs")}. {guess}'
        'Give a run or a key of runs.csv, or a name that `spml runs` prints.'
    )


def _change(recorded: dict, changes: dict) -> dict:
    """Apply changes to a recorded configuration. If they change the method, fields that depend on
    the old one are dropped.
    """
    from ..methods.core import find  # loads torch

    old = recorded['loss']
    new = changes.get('loss', old)
    if new != old:
        method_fields = {'hparams', 'head', 'side', 'embedding_dim', 'views', 'stage2_lr'}
        method_fields |= {*find(old).recipe, *find(new).recipe}
        recorded = {name: value for name, value in recorded.items() if name not in method_fields}
    return _merge(recorded, changes)
