"""Names of classes, photos and folders come from other people: they are shown, and nowhere executed."""

import html
import re

_CONTROLS = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]')


def escape_for_terminal(text: str) -> str:
    """Text that a terminal prints and does not obey.

    Args:
        text: any. Line breaks and tabs stay.

    Returns:
        The text with control characters and marks of direction written out, such as `\\x1b`.
    """
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def escape_bytes(text: str) -> str:
    """Text that every file in UTF-8 can hold, whatever the name of a folder is made of.

    Args:
        text: any, also as from `os.fsdecode`.

    Returns:
        The text with bytes that are not UTF-8 written out, such as `\\udcff`. JSON reads them back.
    """
    return text.encode('utf-8', 'backslashreplace').decode()


def escape_for_markdown(text: str) -> str:
    """Text that Markdown, and HTML in it, show as it is.

    Args:
        text: any; it becomes one line.

    Returns:
        Markdown.
    """
    one_line = re.sub(r'\s*[\r\n]\s*', ' ', escape_bytes(text))
    return re.sub(
        r'[\\`*|\[\]#~]', r'\\\g<0>', html.escape(escape_for_terminal(one_line), quote=False)
    )


def code_span(text: str) -> str:
    """Text as code within a line of Markdown.

    Args:
        text: any; it becomes one line.

    Returns:
        The text between more backticks than it has in a row itself.
    """
    one_line = escape_for_terminal(re.sub(r'[\r\n]', ' ', escape_bytes(text)))
    fence = '`' * (1 + max(map(len, re.findall('`+', one_line)), default=0))
    blank = ' ' if one_line[:1] == '`' or one_line[-1:] == '`' else ''
    return f'{fence}{blank}{one_line}{blank}{fence}'


def escape_for_spreadsheet(text: str, before: str = "'") -> str:
    """Text that a spreadsheet does not take for a formula.

    Args:
        text: of a cell.
        before: what is put before a formula.

    Returns:
        The text, with `before` at its front if it begins like a formula.
    """
    return f'{before}{text}' if text.lstrip()[:1] in tuple('=+-@＝＋－＠') else text


def csv_for_spreadsheet(table) -> str:
    """A table as comma-separated text in which no cell is a formula.

    Args:
        table: a DataFrame; its index is left out.

    Returns:
        The text.
    """
    shown = table.map(lambda cell: escape_for_spreadsheet(cell) if isinstance(cell, str) else cell)
    return shown.to_csv(index=False, lineterminator='\n')
