"`spml doctor`."

import pandas as pd

from spml_nb.cli import main
from spml_nb.tools import doctor


def test_the_doctor_ends_with_1_when_there_is_a_problem(capsys, monkeypatch):
    for state, status in (('warning', 0), ('problem', 1)):
        table = pd.DataFrame(
            [{'check': 'a check', 'state': state, 'found': 'this', 'remedy': 'do that'}]
        )
        monkeypatch.setattr(doctor, 'check_installation', lambda quick=False, table=table: table)
        monkeypatch.setattr(doctor, 'format_findings', lambda table: table.to_string())
        assert (
            main(['doctor']) == main(['doctor', '--quick']) == status
            and 'do that' in capsys.readouterr().out
        )
