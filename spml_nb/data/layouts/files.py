"""Read text, JSON, XML and YAML files with errors that name the file and the line."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import yaml

from ...base.errors import SpmlError


def read_text(file: Path) -> tuple[str, str]:
    """Read a text file in UTF-8, UTF-16 or cp1252.

    Returns:
        The text, and its encoding: 'utf-8', 'utf-16' or 'cp1252'.
    """
    content = file.read_bytes()
    if content.startswith((b'\xff\xfe', b'\xfe\xff')):
        encodings = ['utf-16']
    else:
        encodings = ['utf-8-sig', 'cp1252']
    for encoding in encodings:
        try:
            return content.decode(encoding), encoding.removesuffix('-sig')
        except UnicodeDecodeError as error:
            reason = error
    raise SpmlError(f'{file} is not a text file: {reason}. Save it in UTF-8.')


def read_json(file: Path) -> Any:
    "Read a JSON file in any encoding of `read_text`."
    try:
        return json.loads(read_text(file)[0])
    except json.JSONDecodeError as error:
        raise SpmlError(
            f'{file}, line {error.lineno}, column {error.colno}: invalid JSON ({error.msg}). '
            'Export it again: the file may be truncated.'
        ) from error


def read_xml(file: Path) -> ElementTree.Element:
    "Read the root element of an XML file."
    try:
        return ElementTree.parse(file).getroot()
    except ElementTree.ParseError as error:
        line, column = error.position
        raise SpmlError(
            f'{file}, line {line}, column {column + 1}: invalid XML ({error.msg}). Export it '
            'again: the file may be truncated.'
        ) from error


def read_yaml(file: Path) -> dict:
    "Read a YAML file; an empty dict if it is not a mapping."
    try:
        content = yaml.safe_load(read_text(file)[0])
    except yaml.YAMLError as error:
        raise SpmlError(f'{file} is not valid YAML: {error}. Fix that line.') from error
    return content if isinstance(content, dict) else {}


def get_field(entry, name: str, kind: type | tuple, where: str):
    "Get a field of a JSON object, which must be of that kind (or one of these kinds)."
    value = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        nouns = {int: 'a whole number', str: 'a text', list: 'a list'}
        kinds = kind if isinstance(kind, tuple) else (kind,)
        expected = ' or '.join(nouns[kind] for kind in kinds)
        raise SpmlError(
            f'{where} has no usable `{name}`; expected: {expected}. Export the labels again, or '
            'fix that entry.'
        )
    return value
