"""The table of record: old lines stay, new ones are added, and nothing is written that pandas would
read back as something else.
"""

import shutil

import pandas as pd
import pytest

from spml_nb import runs
from spml_nb.base.errors import SpmlError
from spml_nb.base.files import write_atomically
from spml_nb.runs import record
from spml_nb.runs.config import Config, resolve, science_key
from spml_nb.runs.folder import Run, read_json
from spml_nb.runs.record import parse_recorded_config


def test_table_keeps_old_lines_and_adds_new_ones(tmp_path):
    for seed in (0, 1):
        run = Run(resolve(Config(seed=seed)), tmp_path / 'runs')
        run.start()
        run.finish(
            {
                'scores': {'test_map': 10.0 + seed, 'test_ap': [1]},
                'seconds': 1.0,
                'data': 'x',
                'provenance': {'commit': None},
            }
        )
        table = runs.export_csv(tmp_path / 'runs.csv', tmp_path / 'runs')
        assert len(table) == seed + 1
    for folder in (tmp_path / 'runs').iterdir():
        (folder / 'DONE').unlink(missing_ok=True)
    assert len(runs.export_csv(tmp_path / 'runs.csv', tmp_path / 'runs')) == 2


def test_a_score_that_earlier_lines_lack_is_empty_there(tmp_path):
    for seed, scores in enumerate(({'test_map': 10.0}, {'test_map': 11.0, 'val_map_at_end': 9.5})):
        run = Run(resolve(Config(seed=seed)), tmp_path / 'runs')
        run.start()
        result = {'scores': scores, 'seconds': 1.0, 'data': 'x', 'provenance': {'commit': None}}
        run.finish(result)
        runs.export_csv(tmp_path / 'runs.csv', tmp_path / 'runs')
        (run.folder / 'DONE').unlink()  # so that it stands in the table alone
    table = pd.read_csv(tmp_path / 'runs.csv').set_index('seed')
    assert table.val_map_at_end.isna().to_dict() == {0: True, 1: False}
    assert table.loc[1, 'val_map_at_end'] == 9.5


def test_a_run_is_read_once_and_again_when_a_file_of_it_is_another(tmp_path, monkeypatch):
    run = Run(resolve(Config()), tmp_path)
    run.start()
    run.finish(
        {'scores': {'test_map': 10.0}, 'seconds': 1.0, 'data': 'x', 'provenance': {'commit': None}}
    )
    reads = []

    def read(file, *needed):
        reads.append(file.name)
        return read_json(file, *needed)

    monkeypatch.setattr(record, 'read_json', read)
    for _ in range(3):
        assert runs.load(tmp_path).test_map.tolist() == [10.0]
    assert reads == ['config.json', 'result.json']
    file = run.folder / 'result.json'
    write_atomically(file, file.read_text().replace('10.0', '11.0'))
    assert runs.load(tmp_path).test_map.tolist() == [11.0]
    file.write_text('{')
    with pytest.raises(SpmlError, match=r'result\.json'):
        runs.load(tmp_path)


def test_a_line_without_a_score_that_its_run_has_now_is_replaced(tmp_path):
    run = Run(resolve(Config()), tmp_path / 'runs')

    def recorded(scores):
        shutil.rmtree(run.folder, ignore_errors=True)
        run.start()
        result = {'scores': scores, 'seconds': 1.0, 'data': 'x', 'provenance': {'commit': None}}
        run.finish(result)
        runs.export_csv(tmp_path / 'runs.csv', tmp_path / 'runs')
        table = pd.read_csv(tmp_path / 'runs.csv').reindex(columns=['test_map', 'val_micro_f1'])
        return table.fillna(-1).to_numpy().tolist()

    assert recorded({'test_map': 10.0}) == [[10.0, -1]]
    assert recorded({'test_map': 11.0}) == [[10.0, -1]]
    assert recorded({'test_map': 11.0, 'val_micro_f1': 0.5}) == [[11.0, 0.5]]
    assert recorded({'test_map': 12.0}) == [[11.0, 0.5]]


def test_a_run_trained_anew_on_changed_photos_gets_a_line_beside_its_old_one(
    tmp_path, photo_folder
):
    config = resolve(Config(loss='an', dataset=str(photo_folder), backbone='mini'))
    run = Run(config, tmp_path / 'runs')

    def finished(data, score):
        shutil.rmtree(run.folder, ignore_errors=True)  # as the error about changed data says
        run.start()
        run.finish(
            {
                'scores': {'test_map': score},
                'seconds': 1.0,
                'data': data,
                'provenance': {'commit': None},
            }
        )
        return runs.export_csv(tmp_path / 'runs.csv', tmp_path / 'runs')

    finished('aaaa', 10.0)
    text = (tmp_path / 'runs.csv').read_text()
    assert (
        finished('aaaa', 20.0).test_map.tolist() == ['10.0']
        and (tmp_path / 'runs.csv').read_text() == text
    )
    table = finished('bbbb', 90.0)
    assert dict(zip(table.data, table.test_map, strict=True)) == {'aaaa': '10.0', 'bbbb': '90.0'}
    assert table.run.nunique() == 1 and set(table.key) == {
        runs.science_key(config, data) for data in ('aaaa', 'bbbb')
    }


@pytest.mark.parametrize('name', ['2019', 'null', 'NA'])
def test_a_folder_may_have_any_name(tmp_path, photo_folder, name):
    folder = photo_folder.rename(photo_folder.with_name(name))
    config = resolve(Config(loss='an', dataset=str(folder), backbone='mini'))
    run = Run(config, tmp_path / 'runs')
    run.start()
    run.finish(
        {
            'scores': {'test_map': 10.0},
            'seconds': 1.0,
            'data': 'aaaa',
            'provenance': {'commit': None},
        }
    )
    runs.export_csv(tmp_path / 'runs.csv', tmp_path / 'runs')
    table = runs.read_record(tmp_path / 'runs.csv')
    assert (
        table.dataset.tolist() == [name]
        and table.test_map.tolist() == [10.0]
        and table.side.isna().all()
    )


def test_missing_values_are_empty_whatever_pandas_writes_for_them(tmp_path, monkeypatch):
    for seed, scores in (
        (0, {'test_map': 10.0, 'val_map': 9.0}),
        (1, {'test_map': 11.0}),
    ):  # trained without validation
        run = Run(resolve(Config(seed=seed)), tmp_path / 'runs')
        run.start()
        run.finish({'scores': scores, 'seconds': 1.0, 'data': 'x', 'provenance': {'commit': None}})
    runs.export_csv(tmp_path / 'now.csv', tmp_path / 'runs')
    monkeypatch.setattr(
        pd.DataFrame, 'astype', lambda table, kind: table.map(str)
    )  # as pandas did before version 3
    runs.export_csv(tmp_path / 'before.csv', tmp_path / 'runs')
    assert (tmp_path / 'now.csv').read_bytes() == (tmp_path / 'before.csv').read_bytes()
    assert runs.read_record(tmp_path / 'before.csv').val_map.isna().sum() == 1


def test_the_table_of_record_takes_words_for_how_much_is_known(tmp_path):
    row = dict.fromkeys(runs.RECORD, '1') | {
        'val_truth': 'complete',
        'test_truth': 'observed only',
        'test_map': '50.0',
    }
    pd.DataFrame([row]).to_csv(tmp_path / 'runs.csv', index=False)
    assert runs.read_record(tmp_path / 'runs.csv').test_truth.tolist() == ['observed only']
    pd.DataFrame([row | {'late': 'oops'}]).to_csv(tmp_path / 'runs.csv', index=False)
    with pytest.raises(SpmlError, match="late is 'oops', which is no number"):
        runs.read_record(tmp_path / 'runs.csv')


def test_a_rate_of_the_second_stage_is_kept_and_leaves_other_keys_as_they_are(tmp_path):
    given = {'loss': 'lac', 'dataset': 'mini_voc', 'seed': 3}
    tried = [resolve(Config(**given)), resolve(Config(**given, stage2_lr=2e-4))]
    for config in tried:
        run = Run(config, tmp_path)
        run.start()
        run.finish({'scores': {}, 'seconds': 1.0, 'data': 'x', 'provenance': {'commit': None}})
    file = tmp_path / 'runs.csv'
    runs.export_csv(file, tmp_path)
    for line in runs.read_record(file, dtype=str, keep_default_na=False).to_dict('records'):
        assert science_key(parse_recorded_config(line)) == line['key']
    assert runs.read_record(file).stage2_lr.dropna().tolist() == [2e-4]
    # the key that this configuration had before there was such a field
    assert science_key(tried[0]) == 'lac-mini_voc-1317d1772791'


def test_usual_values_are_left_out_and_read_back_and_old_files_are_read_as_they_are(tmp_path):
    file = tmp_path / 'runs.csv'
    for seed, fields in ((0, {'epochs': 60, 'head': 'linear'}), (1, {'epochs': 30, 'side': ''})):
        run = Run(resolve(Config(seed=seed, loss='an', dataset='mini_voc', **fields)), tmp_path)
        run.start()
        run.finish(
            {
                'scores': {'test_map': 18.17015050244864, 'val_map': 9.0},
                'seconds': 93.54103915600717,
                'data': 'x',
                'provenance': {'commit': None},
            }
        )
    runs.export_csv(file, tmp_path)
    compact = pd.read_csv(file, dtype=str, keep_default_na=False)
    assert set(compact.epochs) == {'', '30'} and 'momentum' not in compact
    assert set(compact.test_map) == {'18.1702'} and set(compact.seconds) == {'93.541'}
    texts = runs.read_record(file, dtype=str, keep_default_na=False)
    for line in texts.to_dict('records'):
        assert science_key(parse_recorded_config(line)) == line['key']
    assert set(texts.epochs) == {'60', '30'} and set(texts.views) == {'shift'}
    texts.to_csv(file, index=False)  # as versions before wrote it
    pd.testing.assert_frame_equal(
        runs.read_record(file, dtype=str, keep_default_na=False), texts, check_dtype=False
    )
    typed = runs.read_record(file)
    assert typed.momentum.tolist() == [0.9] * 2 and typed.nesterov.dtype == bool
    before = file.stat().st_size
    runs.export_csv(file, tmp_path)
    assert file.stat().st_size < before
