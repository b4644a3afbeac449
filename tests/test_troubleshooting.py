"""What TROUBLESHOOTING.md links, quotes and tells people to type is there."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from spml_nb import cli

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / 'TROUBLESHOOTING.md').read_text(encoding='utf-8')
FOREIGN = r'\*'  # behind a message of another program
SHORTEST = 12  # characters of a quoted message that can be searched for
SPANS = [span.replace(r'\|', '|') for span in re.findall('`([^`]+)`', PAGE.replace('```', ''))]


def anchor(heading):
    return re.sub(r'[-\s]+', '-', re.sub(r'[^\w\s-]', '', heading).strip().lower())


def test_the_page_is_short():
    assert len(PAGE.encode()) <= 15_000


def test_every_link_leads_somewhere():
    anchors = {anchor(heading) for heading in re.findall('^## (.+)$', PAGE, re.M)}
    links = re.findall(r'\]\(([^)]+)\)', PAGE)
    assert {link[1:] for link in links if link[0] == '#'} == anchors
    assert all((ROOT / link).is_file() for link in links if link[0] != '#')


@pytest.mark.parametrize(
    'command', sorted({span for span in SPANS if span.startswith(('spml ', 'make '))} - {'spml '})
)
def test_every_command_exists(command):
    program, name, *words = shlex.split(command.removesuffix(': command not found'), comments=True)
    if program == 'make':
        assert re.search(f'^{name}:', (ROOT / 'Makefile').read_text(), re.M)
        return
    choices = cli.build_parser()._subparsers._group_actions[0].choices
    options = {'-h', '--help'} | {
        option for action in choices[name]._actions for option in action.option_strings
    }
    assert {word for word in words if word.startswith('-')} <= options


def ours():
    "Messages in the first cells of tables, cut at the holes."
    for line in PAGE.splitlines():
        cell = re.split(r'(?<!\\)\|', line)[1] if line.startswith('| ') else ''
        for message, mark in re.findall(r'`([^`]+)`(\\\*)?', cell):
            if mark != FOREIGN:
                yield from (piece.strip() for piece in message.replace(r'\|', '|').split('…'))


def test_every_quoted_message_of_ours_is_in_the_package():
    texts = [
        ' '.join(node.value.split())
        for file in (ROOT / 'spml_nb').rglob('*.py')
        for node in ast.walk(ast.parse(file.read_text(encoding='utf-8')))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    package = '\n'.join(texts)
    pieces = [piece for piece in ours() if len(piece) >= SHORTEST]
    assert len(pieces) > 20
    assert [piece for piece in pieces if piece.removeprefix('unknown ') not in package] == []
