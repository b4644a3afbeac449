"What unknown arguments are answered with."

import pytest

from spml_nb.cli import main


@pytest.mark.parametrize(
    'words, remedy',
    [
        (['compare', 'x', 'an', '-p', 'min_positives', '20'], '--min-positives VALUE'),
        (['compare', 'x', '-p', 'lr', '0.1'], 'tries settings by itself'),
        (['train', '--min-positives', '20'], '`spml train -p min_positives VALUE`'),
        (
            ['train', '-p', 'loss', 'em', '--min_positives=20'],
            '`spml train -p min_positives VALUE`',
        ),
        (['runs', '--loss', 'em'], '`spml runs -p loss VALUE`'),
        (['sweep', 'hml', '-p', 'loss', 'em'], '`spml sweep` takes it as --loss VALUE'),
        (['predict', 'r', 'x', '-p', 'lr', '0.1'], '`spml predict` takes a run as it was trained'),
        (['report', 'r', '--lr', '0.1'], '`spml report` takes a run as it was trained'),
        (['data', 'x', '-p', 'min_positives', '20'], '`spml data` takes no field of a run'),
        (['train', '--foo'], ''),
    ],
)
def test_a_field_in_the_form_of_another_command_brings_the_right_one(capsys, words, remedy):
    with pytest.raises(SystemExit):
        main(words)
    message = capsys.readouterr().err.splitlines()[-1]
    assert remedy in message and (remedy or message.endswith(words[-1]))
