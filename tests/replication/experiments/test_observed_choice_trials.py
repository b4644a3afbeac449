"""The trials of `observed_choice`: their plans, and the record that pages read."""

import json

import pytest
from choice_trials import make_trials
from quick import config

from spml_nb.base.errors import SpmlError
from spml_nb.replication.experiments.observed_choice import (
    FILE_LABELS,
    LABELS,
    LABELS_DATASETS,
    SEEDS,
    read_trials,
)
from spml_nb.replication.experiments.observed_choice_trials import (
    Trial,
    collect_trials,
    plan_label_trials,
    plan_trials,
    run_trial,
    sweep_observed_choice,
)
from spml_nb.replication.experiments.observed_choice_watch import trials_folder


def test_other_draws_are_planned_beside_the_even_one():
    plans = {
        (dataset, seed): plan_label_trials(dataset, seed)
        for dataset in LABELS_DATASETS
        for seed in SEEDS
    }
    assert sum(map(len, plans.values())) == 720
    planned = plans['ccp', 1000]
    even = plan_trials('ccp', 1000)
    assert {trial.labels for trial in planned} == set(LABELS) - {'single'}
    for trial, drawn in planned.items():
        same = even[Trial(trial.dataset, trial.loss, trial.draw, trial.seed)]
        drawn_by_run = 'single' if trial.labels == 'salient' else trial.labels
        assert drawn == same.changed(labels=drawn_by_run)
    names = {trial.name for trial in [*planned, *even]}
    assert len(names) == len(planned) + len(even)
    assert Trial('ccp', 'an', 0, 1000).name == 'ccp-an-0-1000'  # of files that are there already


def test_finished_runs_are_collected_once(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path / 'outputs'))
    place = trials_folder()
    place.mkdir(parents=True)
    for line in make_trials().head(3).to_dict('records'):
        (place / f"ccp-{line['loss']}-{line['draw']}-1000.json").write_text(json.dumps(line))
    for _ in range(2):
        assert len(collect_trials()) == 3
    assert len(read_trials()) == 3
    with pytest.raises(SpmlError, match="'nuswide'"):
        sweep_observed_choice(['nuswide'], dry_run=True)
    told = []
    table = sweep_observed_choice(['ccp'], dry_run=True, tell=told.append)
    assert len(table) == 420 and (table.state == 'done').sum() == 3 and '417 are missing' in told[0]


def test_runs_whose_labels_are_not_drawn_evenly_have_a_record_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    monkeypatch.setenv('SPML_NB_OUTPUTS', str(tmp_path / 'outputs'))
    place = trials_folder()
    place.mkdir(parents=True)
    even, other = make_trials().head(2).to_dict('records')
    (place / 'a.json').write_text(json.dumps(even))
    collect_trials()
    before = (tmp_path / 'outputs' / 'observed_choice.csv').read_bytes()
    for name, labels in (('b', 'salient'), ('c', 'single-frequent')):
        (place / f'{name}.json').write_text(json.dumps(other | {'labels': labels}))
        for _ in range(2):
            collect_trials()
    assert (tmp_path / 'outputs' / 'observed_choice.csv').read_bytes() == before
    drawn = read_trials(FILE_LABELS)
    assert sorted(drawn.labels) == ['salient', 'single-frequent']
    # a run that is told which labels it had, as new ones are, is no other run
    (place / 'a.json').write_text(json.dumps(even | {'labels': 'single'}))
    collect_trials()
    assert (tmp_path / 'outputs' / 'observed_choice.csv').read_bytes() == before
    table = sweep_observed_choice(['ccp'], dry_run=True, tell=lambda line: None)
    assert (table.state == 'done').sum() == 3


@pytest.mark.slow
def test_a_run_is_watched_by_every_rule(photo_folder, tmp_path, monkeypatch):
    monkeypatch.setenv('SPML_NB_RUNS', str(tmp_path / 'runs'))
    given = config(photo_folder, regime='linear', epochs=3, patience=0, seed=5, label_seed=5)
    trial = Trial('photos', 'an', 0, 5)
    line = run_trial(trial, given)
    assert line['dataset'] == 'photos' and line['seed'] == 5 and 1 <= line['auc_shrunk_epoch'] <= 3
    assert run_trial(trial, given) == line  # not trained again
