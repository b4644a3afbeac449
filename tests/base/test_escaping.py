"""Names from elsewhere: shown as they are, obeyed nowhere, and what a table of labels says does not
change.
"""

import html
import re

import pytest

from spml_nb.base.errors import SpmlError, require_kind, require_one_of
from spml_nb.base.escaping import (
    code_span,
    escape_for_markdown,
    escape_for_spreadsheet,
    escape_for_terminal,
)
from spml_nb.base.files import print_line
from spml_nb.data.dataset import join_items

CONTROLS = [
    chr(k) for k in (*range(32), *range(127, 160), 0x200E, 0x202E, 0x2066) if chr(k) not in '\n\t'
]


@pytest.mark.silent('C9')
@pytest.mark.parametrize('control', CONTROLS, ids=lambda sign: f'{ord(sign):x}')
def test_no_control_character_reaches_a_terminal(control, capsys):
    text = f'cat{control}dog'
    assert control not in escape_for_terminal(text) and escape_for_terminal(text).startswith(
        'cat\\'
    )
    print_line(text)
    with pytest.raises(SpmlError) as caught:
        raise SpmlError(f'{text} is no class.')
    assert all(
        control not in shown
        for shown in (capsys.readouterr().out, str(caught.value), join_items([text]))
    )


@pytest.mark.silent('C9')
def test_what_is_no_control_character_stays():
    text = 'Möwe 猫 −1\n\tzwei'
    assert escape_for_terminal(text) == text and join_items(['a\nb', 'c']) == r'a\nb, c'


@pytest.mark.silent('C9')
def test_markdown_shows_html_and_links_as_text():
    text = '<img src=x onerror=alert(1)> [a](javascript:b) `c` | d\n# e'
    shown = escape_for_markdown(text)
    assert '<' not in shown and not re.search(r'(?<!\\)[`|\[\]#]', shown) and '\n' not in shown
    assert html.unescape(re.sub(r'\\(.)', r'\1', shown)) == text.replace('\n', ' ')
    for code in ('a', 'a`b', 'a ``` b', "-y '{\"a\": \"`x`<b>\"}'"):
        fence = re.match('`+', code_span(code))[0]
        assert code_span(code) == f'{fence}{code}{fence}' and fence not in code
    assert code_span('`a`') == '`` `a` ``'


@pytest.mark.silent('C9')
@pytest.mark.parametrize('formula', ['=1+1', '+1', '-1', '@SUM(1)', '\t=1', ' =1', '＝1'])
def test_no_cell_is_a_formula(formula):
    assert escape_for_spreadsheet(formula) == f"'{formula}"
    for plain in ('cat', "'", '', 'a=1', '|x', './-x'):
        assert escape_for_spreadsheet(plain) == plain


@pytest.mark.silent('C10')
def test_a_message_is_bounded_whatever_its_value():
    bomb = ['lol'] * 10
    for _ in range(12):
        bomb = [bomb] * 10  # 10¹³ words
    for check in (
        lambda: require_kind(bomb, float, 'lr'),
        lambda: require_one_of(bomb, ['an'], 'loss'),
        lambda: require_kind(1 << 90000, str, 'loss'),
    ):
        with pytest.raises(SpmlError) as caught:
            check()
        assert len(str(caught.value)) < 20_000
    with pytest.raises(SpmlError) as caught:
        raise SpmlError('x' * 10**7 + ' Give another.')
    assert len(str(caught.value)) < 10_000 and str(caught.value).endswith('Give another.')
