"""`spml`: one command, with a sub-command for each task at a terminal."""

from .command import build_parser, main

__all__ = ['build_parser', 'main']
