"`spml runs`."

import pytest

from spml_nb.cli import main


@pytest.mark.silent('C9')
def test_a_table_for_a_program_is_exact_and_holds_no_formula(tmp_path, capsys):
    folder = tmp_path / 'runs' / '=cmd-x-0123456789ab'
    folder.mkdir(parents=True)
    (folder / 'config.json').write_text('{')
    assert main(['runs', '--csv']) == 0
    assert "\n'=cmd-x-0123456789ab,damaged," in capsys.readouterr().out
