"""Errors explain themselves, travel between processes, and importing them changes nothing."""

import pickle
import subprocess
import sys
import warnings

import pytest

from spml_nb import cli
from spml_nb.base.errors import (
    SpmlError,
    parse_number,
    require_kind,
    require_one_of,
    short_warnings,
    warn,
)
from spml_nb.data.official import registry


class Refused(SpmlError):
    pass


@pytest.mark.parametrize('kind', [SpmlError, Refused])
def test_an_error_travels_between_processes_and_is_raised_again(kind):
    first = kind('two\nlines \x1b[2J')
    for copy in (pickle.loads(pickle.dumps(first)), kind(*first.args), kind(str(first))):
        assert type(copy) is kind and str(copy) == 'two\nlines \\x1b[2J'


def test_a_check_names_the_value_and_the_nearest_allowed_one():
    with pytest.raises(SpmlError, match=r"loss 'rolle'.*an, role.*'role'\? Look there\.$"):
        require_one_of('rolle', ['an', 'role'], 'loss', 'Look there.')
    assert require_one_of(3, [3, 4], 'number') == 3


@pytest.mark.parametrize(
    'value, kind, result',
    [('1e-4', float, 1e-4), ('3', int, 3), (3.0, int, 3), ([1, 2], tuple, (1, 2)), ({}, dict, {})],
)
def test_a_value_becomes_another_kind_where_that_loses_nothing(value, kind, result):
    converted = require_kind(value, kind, 'lr')
    assert converted == result and type(converted) is kind


@pytest.mark.parametrize(
    'value, kind',
    [('x', float), (1.5, int), (True, int), ('nan', float), (10**400, float), (1, str), (1, bool)],
)
def test_a_value_of_another_kind_is_refused_by_name(value, kind):
    with pytest.raises(SpmlError, match=r'^lr must be '):
        require_kind(value, kind, 'lr')


def test_what_is_no_number_is_nan():
    assert parse_number(' 2.5 ') == 2.5
    for value in (True, None, [], 'x', 10**400):
        assert parse_number(value) != parse_number(value)


def test_a_command_prints_each_warning_once_without_a_line_of_code(capsys):
    def caller():
        warn('Look at it.\x07')

    with warnings.catch_warnings():  # pytest keeps warnings for itself; here they are printed
        warnings.showwarning = lambda *given: print(warnings.formatwarning(*given[:4]), end='')
        warnings.simplefilter('always')
        with short_warnings():
            for _ in range(2):
                caller()
            warnings.warn('of another library', UserWarning, stacklevel=1)
        assert capsys.readouterr().out == 'warning: Look at it.\\x07\nwarning: of another library\n'
        caller()
        assert 'test_errors.py' in capsys.readouterr().out


def test_the_command_line_prints_warnings_of_other_libraries_in_the_same_way(monkeypatch):
    shown = []

    def overview(root):
        shown.append(warnings.formatwarning('no end', UserWarning, 'file.py', 7))
        return ''

    usual = warnings.formatwarning
    monkeypatch.setattr(registry, 'describe_benchmarks', overview)
    assert cli.main(['data']) == 0
    assert shown == ['warning: no end\n'] and warnings.formatwarning is usual


def test_importing_the_package_changes_no_global_state():
    code = (
        'import warnings; usual = warnings.formatwarning, warnings.showwarning, warnings.filters[:]'
        '; import spml_nb.losses, spml_nb.data.loading, spml_nb.base.errors'
        '; assert usual[:2] == (warnings.formatwarning, warnings.showwarning)'
        '; assert not [each for each in warnings.filters if "spml" in str(each).lower()]'
    )
    subprocess.run([sys.executable, '-c', code], check=True)
