"""NUS-WIDE in its three versions."""

import json

import pytest

from spml_nb.base.errors import SpmlError
from spml_nb.data.official.registry import find_benchmark, prepare_benchmark

pytestmark = pytest.mark.filterwarnings(
    'ignore:.*(never used|no training image has it|No positive)'
)


@pytest.mark.parametrize('name', ['nus'])
def test_from_the_official_files_to_a_dataset(goes_round, name):
    goes_round(name)


def test_the_versions_of_nus_have_their_own_name_and_size():
    assert [
        (
            name,
            find_benchmark(name).version,
            find_benchmark(name).counts['train'],
            find_benchmark(name).counts['test'],
        )
        for name in ('nus', 'nus-official', 'nus-labelled')
    ] == [
        ('nus', 'recrawled', 150_000, 60_260),
        ('nus-official', 'official', 161_789, 107_859),
        ('nus-labelled', 'labelled', 119_103, 50_720),
    ]


def test_lists_of_another_version_are_refused_and_the_version_is_kept(copy):
    benchmark, root, _, _ = copy('nus')
    with pytest.raises(SpmlError, match=r'12 training images \(expected 150,000\)'):
        prepare_benchmark(find_benchmark('nus'), root, tell=lambda line: None)
    prepare_benchmark(benchmark, root, tell=lambda line: None)
    assert json.loads((root / 'nus' / 'ready.json').read_text())['version'] == 'recrawled'


def test_labels_that_do_not_fit_the_list_are_refused(unpacked):
    folder, _ = unpacked('nus')
    file = next(folder.rglob('Labels_zebra_Test.txt'))
    for content in ('1\n0\n', '1\n0\n2\n0\n', '1\nx\n0\n0\n'):
        file.write_text(content)
        with pytest.raises(SpmlError, match='Labels_zebra_Test.txt'):
            find_benchmark('nus').read(folder)
