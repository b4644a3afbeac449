"""Published beside ours: the papers’ numbers, tables, figures and claims."""

from spml_nb.base import lazily

__getattr__ = lazily(__name__, {'tables': 'Table record table'})
