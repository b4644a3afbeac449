"Every method has the same search: as many candidates, chosen by validation, compared on the same head and seeds."
import json

import pytest

from spml_nb import methods, runs, sweeps
from spml_nb.base import settings
from spml_nb.base.errors import SpmlError
from spml_nb.runs.config import config_hash, resolve
from spml_nb.runs.folder import Run
from spml_nb.sweeps.search import Row


def test_wrong_names_are_refused():
    with pytest.raises(SpmlError, match="unknown suite 'maxi'; allowed: mini, photos"): sweeps.candidates(Row('an'), 'maxi', 'ccp')
    with pytest.raises(SpmlError, match="unknown data set of the suite 'photos' 'mini_voc'; allowed: ccp"): sweeps.candidates(Row('an'), 'photos', 'mini_voc')
    with pytest.raises(SpmlError, match="unknown loss 'ann'"): sweeps.candidates(Row('ann'), 'mini', 'mini_voc')


@pytest.mark.parametrize('loss', methods.names())
def test_every_search_is_of_the_same_size_and_starts_from_the_paper(loss):
    for suite, given in sweeps.SUITES.items():
        for dataset in given['datasets']:
            tried = sweeps.candidates(Row(loss), suite, dataset)
            assert len({config_hash(resolve(c)) for c in tried}) == sweeps.BUDGET == 4
            assert tried[0].hparams == {} and tried[0].lr == given['lr'][0] and {c.seed for c in tried} == {0}


def finish(config, val, test):
    run = Run(resolve(config))
    run.start()
    run.finish({'scores': {'val_map': val, 'test_map': test}, 'seconds': 1.0, 'data': '', 'provenance': {'commit': None}})


def test_the_best_by_validation_is_chosen_and_seeds_follow():
    tried = sweeps.candidates(Row('an'), 'mini', 'mini_voc')
    for config, val, test in zip(tried, (50, 70, 60, 70), (90, 10, 95, 99), strict=True):
        assert sweeps.finals(Row('an'), 'mini', 'mini_voc', sweeps.finished()) == []
        finish(config, val, test)
    known = sweeps.finished()
    assert sweeps.choose(tried, known) == tried[1]   # the test scores play no part; the first of equals
    assert [(c.lr, c.seed, c.label_seed) for c in sweeps.finals(Row('an'), 'mini', 'mini_voc', known)] == [(tried[1].lr, s, s) for s in (0, 1, 2)]
    record = sweeps.searched(Row('an'), 'mini', 'mini_voc', known)
    assert record.chosen.tolist() == [False, True, False, False] and record.val_map.tolist() == [50, 70, 60, 70]
    assert json.loads(record.hparams[0]) == {}


def test_the_outcome_compares_with_an_on_the_same_head():
    rows, test = [Row('an'), Row('em'), Row('an', head='cosine'), Row('hml'), Row('wan')], {'an': 50, 'em': 53, 'hml': 70}
    for row in rows[:4]:
        base = test[row.loss] + 10 * (row.head == 'cosine')
        for config in sweeps.candidates(row, 'mini', 'mini_voc'): finish(config, 60, base)
        for config in sweeps.finals(row, 'mini', 'mini_voc', sweeps.finished())[1:]: finish(config, 60, base + config.seed)
    runs.export_csv()   # the table of record is enough
    for folder in settings.path('runs').iterdir():
        if folder.is_dir(): (folder / 'DONE').unlink()
    table = sweeps.outcome(rows, 'mini', 'mini_voc', sweeps.finished()).set_index(['loss', 'head'])
    assert table.over_an['em', 'linear'] == 3 and table.over_an['hml', 'cosine'] == 10 and table.over_an['an', 'cosine'] == 0
    assert table.test_maps['em', 'linear'] == [53, 54, 55] and table.sd['em', 'linear'] == 1 and table.n['wan', 'linear'] == 0
