"Templates of pages: all of them are used, none has a result, and a field that is not there stops."

import math
import re
from importlib.resources import files
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd
import pytest

from spml_nb.replication import published, templates
from spml_nb.statistics import estimate_effect

TEMPLATES = files('spml_nb') / 'assets' / 'templates'
NAMES = sorted(file.name for file in TEMPLATES.iterdir())
PACKAGE = Path(templates.__file__).parent


@pytest.fixture
def one(monkeypatch):
    """Renders the text of a template."""

    def render(source, name='page.md', **fields):
        environment = templates._environment()
        monkeypatch.setattr(environment, 'loader', jinja2.DictLoader({name: source}))
        return templates.render_template(name, **fields)

    templates._environment.cache_clear()
    yield render
    templates._environment.cache_clear()


@pytest.mark.parametrize('name', NAMES)
def test_every_template_is_used(name):
    templates = [TEMPLATES / other for other in NAMES if other != name]
    sources = [*PACKAGE.parent.rglob('*.py'), *templates]
    used = name
    for paper in published.list_papers():
        used = used.replace(f'conclusion_{paper}', 'conclusion_{paper}')
    assert any(f"'{used}'" in source.read_text(encoding='utf-8') for source in sources)


@pytest.mark.parametrize('name', [name for name in NAMES if name.endswith(('.md', '.html'))])
def test_no_template_has_a_result(name):
    text = (TEMPLATES / name).read_text(encoding='utf-8')
    assert re.findall(r'[+−±] ?\d+[.]\d', text) == []


def test_a_field_that_is_not_there_stops(one):
    with pytest.raises(jinja2.UndefinedError, match='gain'):
        one('{{ gain }}')


def test_html_escapes_every_field_and_markdown_where_it_is_asked_to(one):
    assert one('{{ text }}', 'page.html', text='<b>') == '&lt;b&gt;'
    assert one('{{ text }} {{ text | md }}', text='*b*') == r'*b* \*b\*'


def test_a_paragraph_is_filled_and_an_item_of_a_list_indented(one):
    text = one('{% filter fill %}\n- ' + 'ten\n' * 50 + '{% endfilter %}\nend')
    first, second, last = text.split('\n')
    assert len(first) <= 140 and second.startswith('  ten') and last == 'end'
    address = '[more](outputs/README.md#published-and-ours)'  # which a break would cut in two
    assert all(
        address in one(f'{{% filter fill %}}\n{"x" * n} {address}{{% endfilter %}}')
        for n in range(80, 140)
    )


def test_a_missing_number_is_told_from_zero(one):
    text = '{% for x in numbers %}{{ "–" if x is missing else x | signed }} {% endfor %}'
    assert one(text, numbers=[math.nan, None, 0.0, -1.26]) == '– – +0.0 −1.3 '


def test_a_table_has_as_many_lines_as_rows_and_a_rule(one):
    assert one('{{ rows | grid }}', rows=[['a', 'b'], [1, 2]]) == (
        '| a | b |\n| --- | --- |\n| 1 | 2 |'
    )


def test_a_row_has_a_mean_where_every_set_has_an_effect():
    effects = {'voc': estimate_effect(np.array([1.0, 3.0])), 'coco': estimate_effect([2.0, 4.0])}
    first, second, mean = templates.format_effects(effects, ['voc', 'coco'])
    assert first.startswith('+2.0 ±') and second.startswith('+3.0 ±')
    assert mean.startswith('+2.5 ±')
    assert templates.format_effects(effects, ['voc', 'ccp'])[1:] == ['–', '–']


def test_cells_are_strings_below_the_columns():
    table = pd.DataFrame({'a': [1.5], 'b': ['x']}, index=[10])
    assert templates.list_cells(table, 'n') == [['n', 'a', 'b'], ['10', '1.5', 'x']]
