"""A run is a configuration and the folder it is trained in; the record is the table of all runs."""

# None of this loads torch.

from spml_nb.base import lazily

__getattr__ = lazily(
    __name__,
    {
        'config': (
            'ADDED CHOICES Config VIEW_SETS config_hash config_to_dict neutral_fields '
            'notebook_parameters resolve science_key'
        ),
        'folder': 'Result Run open_run provenance read_json read_result',
        'record': 'RECORD export_csv load newest read_record',
    },
)
