"`spml data` and `spml import`."

import pandas as pd
import pytest
from PIL import Image

from spml_nb.cli import main


def test_the_miniatures_are_listed(capsys):
    assert (
        main(['data']) == 0 and 'mini_voc, mini_coco, mini_nus, mini_cub' in capsys.readouterr().out
    )


def test_a_folder_of_ones_own_is_checked(capsys, photo_folder):
    assert main(['data', str(photo_folder), '--check']) == main(['data', str(photo_folder)]) == 0
    told = capsys.readouterr().out
    assert (
        '60 images' in told
        and '1.7 positives per photo' in told
        and 'Positives of each class' in told
    )
    assert told.endswith(f': spml data {photo_folder} --split\n')  # no column says what is what
    table = photo_folder / 'labels.csv'
    split = [('train', 'train', 'val', 'test')[k % 4] for k in range(60)]
    pd.read_csv(table).assign(split=split).to_csv(table, index=False)
    for column, advised in (('labels', 'bce asl two_way'), ('positives', 'an em hml')):
        table.write_text(table.read_text().replace('image,labels', f'image,{column}'))
        main(['data', str(photo_folder), '--check'])
        told = capsys.readouterr().out
        assert told.endswith(f'Next: spml compare {photo_folder} {advised} --seeds 3\n')
    (photo_folder / 'images' / '007.png').write_bytes(b'')
    assert (
        main(['data', str(photo_folder), '--check']) == 1
        and '007.png (an empty file)' in (told := capsys.readouterr().out)
        and 'Next' not in told
    )
    (photo_folder / 'labels.csv').write_text('image;labels\n')
    assert (
        main(['data', str(photo_folder), '--check']) == 2
        and 'semicolons' in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    'answer, option, column',
    [('c', None, 'labels'), ('p', None, 'positives'), (None, '--complete', 'labels')],
)
def test_what_a_missing_name_means_is_asked_or_told(
    tmp_path, monkeypatch, capsys, answer, option, column
):
    for k in range(4):
        (tmp_path / 'source').mkdir(exist_ok=True)
        Image.new('RGB', (4, 4), (60 * k, 0, 0)).save(tmp_path / 'source' / f'{k}.png')
    (tmp_path / 'source' / 'a.csv').write_text('file;tag\n0.png;cat\n1.png;dog\n2.png;cat\n')
    command = ['import', str(tmp_path / 'source'), str(tmp_path / 'new')]
    assert main(command) == 2
    message = capsys.readouterr().err
    for choice in ('--complete', '--positives-only'):
        assert f'`spml {" ".join(command)} {choice}`' in message
    monkeypatch.setattr('sys.stdin.isatty', lambda: True, raising=False)
    monkeypatch.setattr('builtins.input', lambda question: answer)
    assert main([*command, option] if option else command) == 0
    said = capsys.readouterr().out
    assert 'photos that no label file names: 3.png' in said and 'spml data ' in said
    header = (tmp_path / 'new' / 'labels.csv').read_text().splitlines()[0]
    assert header == f'image,{column}'


@pytest.mark.filterwarnings('ignore')
def test_a_class_with_braces_is_advised_about_as_any_other(capsys, photo_folder):
    file = photo_folder / 'labels.csv'
    names = ['red'] * 30 + ['{x}', 'blue', '{x}', 'blue'] * 2 + ['blue'] * 22
    parts = [('train', 'train', 'val', 'test')[k % 4] for k in range(60)]
    table = pd.read_csv(file)
    table[['image']].assign(positives=names, split=parts).to_csv(file, index=False)
    assert main(['data', str(photo_folder), '--check']) == 0
    told = capsys.readouterr().out
    command = f'spml compare {photo_folder} an em hml --seeds 3'
    assert f'or, with a model that never names {{x}}: {command} --min-positives' in told
