"The command `spml`: what it prints and how it ends."
import pytest

from spml_nb.cli import main


def test_presets_are_printed_with_their_sources(capsys):
    assert main(['presets', '--paper', 'lac']) == 0
    told = capsys.readouterr().out
    assert 'threshold' in told and "authors' code" in told


def test_a_dry_sweep_says_how_much_there_is(capsys):
    assert main(['sweep', 'hml', '--table', '5', '--suite', 'mini', '--dry-run']) == 0
    assert '4 runs of search' in capsys.readouterr().out


@pytest.mark.parametrize(('words', 'message'), [
    (['sweep', 'hmm'], "unknown paper 'hmm'; allowed: hml, opml, lac, two_way, em_apl"),
    (['sweep', 'hml', '--suite', 'maxi'], "unknown suite 'maxi'; allowed: paper, mini, photos"),
    (['sweep', 'hml', '--table', '17'], "unknown table of 'hml' '17'"),
    (['presets', '--paper', 'hmm'], "unknown paper 'hmm'"),
    (['presets', '--loss', 'em'], '--loss goes with --paper')])
def test_wrong_words_end_in_one_line_and_status_2(capsys, words, message):
    assert main(words) == 2
    told = capsys.readouterr().err
    assert told.startswith('error: ') and message in told and told.count('\n') == 1
