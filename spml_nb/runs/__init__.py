"""Runs: a configuration, the folder it is trained in, and the table of all of them. None of this loads torch."""

from spml_nb.base import lazily

__getattr__ = lazily(
    __name__,
    {
        'config': 'ADDED CHOICES Config VIEW_SETS as_dict config_hash neutral notebook_parameters resolve science_key',
        'folder': 'Result Run open_run provenance read_json read_result',
        'record': 'RECORD export_csv load newest read_record',
    },
)
