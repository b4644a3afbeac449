"""index.html as a person meets it, in a browser without a window. Needs Chromium and its driver
(Debian: chromium, chromium-driver) and selenium.
"""

import json

import pytest
from browsing import find_axe_violations, needs_browser, open_chromium
from replication.test_pages import lines_for, only_hml, put_record

from spml_nb.base import files, settings
from spml_nb.replication import pages, paper_figures, tables

pytest.importorskip('selenium.webdriver', reason='selenium is not installed')
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

pytestmark = [pytest.mark.slow, needs_browser]
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="90" viewBox="0 0 {0} 90">'
    '<path d="M0 0L90 90" stroke="#147"/></svg>'
)


@pytest.fixture(scope='module')
def page(tmp_path_factory):
    """The page of one paper whose Table 2 and a row of Table 3 are filled on photos, with one
    figure.
    """
    folder = tmp_path_factory.mktemp('site')
    order = ['AN', 'HML (Ours)', 'ROLE', 'EPR', 'WAN', 'LS']
    full = [
        line
        for line in lines_for('hml', '3', 'photos', lambda row, column, seed: 80.0 + seed)
        if line[2] == 'bce'
    ]
    put_record(
        folder,
        lines_for(
            'hml', '2', 'photos', lambda row, column, seed: 60.0 + 2 * order.index(row) + seed
        )
        + full,
    )

    def draw(paper, number, suite):
        file = settings.get_folder('outputs') / paper / f'fig{number}.svg'
        if number == '3':
            files.write_atomically(file, SVG.format(321))
        return file if number == '3' else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('SPML_NB_OUTPUTS', str(folder))
        patch.setattr(paper_figures, 'draw_paper_figure', draw)
        only_hml(patch)
        pages.write_pages(tell=lambda line: None)
    return folder / 'index.html'


@pytest.fixture(scope='module')
def chromium(tmp_path_factory):
    with open_chromium(tmp_path_factory.mktemp('profile')) as driver:
        yield driver


@pytest.fixture
def browser(chromium, page):
    """The page, just opened. Afterwards: nothing on the console, and nothing asked for but the page
    and its two pictures.
    """
    chromium.get('about:blank')
    for kind in ('browser', 'performance'):
        chromium.get_log(kind)
    chromium.get(page.as_uri())
    yield chromium
    assert chromium.get_log('browser') == []
    pictures = {(page.parent / 'hml' / name).as_uri() for name in ('fig3.svg', 'claims.svg')}
    requested = {url for url in asked(chromium) if not url.startswith('data:')}
    assert {page.as_uri()} <= requested <= {page.as_uri()} | pictures  # those in closed parts wait


def events(chromium, method):
    "What the browser has told of its network since the last time."
    found = [json.loads(entry['message'])['message'] for entry in chromium.get_log('performance')]
    return [event['params'] for event in found if event['method'] == method]


def asked(chromium):
    return [
        event['request']['url'].partition('#')[0].partition('?')[0]
        for event in events(chromium, 'Network.requestWillBeSent')
    ]


def shown(browser, selector):
    "The texts of all visible elements of a kind."
    return [
        element.text
        for element in browser.find_elements(By.CSS_SELECTOR, selector)
        if element.is_displayed()
    ]


def unfold(browser, *ids):
    "Open closed parts of the page, as a press on their first line does."
    for name in ids:
        browser.find_element(By.CSS_SELECTOR, f'#{name} > summary').click()


def rows(browser):
    return shown(browser, '#hml-table-2 tbody th')


def header(browser, label):
    button = browser.find_element(
        By.CSS_SELECTOR, f'#hml-table-2 button[aria-label="sort by {label}"]'
    )
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    return button


def sorted_by(button):
    return button.find_element(By.XPATH, '..').get_attribute('aria-sort')


PAPERS_ORDER = ['AN', 'LS', 'WAN', 'EPR', 'ROLE', 'HML (Ours)']


def test_a_header_sorts_reverses_and_gives_the_papers_order_back(browser):
    button = header(browser, 'ours, COCO')
    assert rows(browser) == PAPERS_ORDER and sorted_by(button) == 'none'
    button.click()
    assert (
        rows(browser) == ['LS', 'WAN', 'EPR', 'ROLE', 'HML (Ours)', 'AN']
        and sorted_by(button) == 'descending'
    )
    button.click()
    assert (
        rows(browser) == ['AN', 'HML (Ours)', 'ROLE', 'EPR', 'WAN', 'LS']
        and sorted_by(button) == 'ascending'
    )
    other = header(browser, 'paper, VOC12')
    other.click()
    assert (
        rows(browser)[0] == 'HML (Ours)'
        and sorted_by(button) == 'none'
        and sorted_by(other) == 'descending'
    )
    for _ in range(2):
        other.click()
    assert rows(browser) == PAPERS_ORDER and sorted_by(other) == 'none'


def test_the_keyboard_sorts_too(browser):
    button = header(browser, 'ours, NUS')
    browser.execute_script('arguments[0].focus()', button)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert rows(browser)[0] == 'LS' and sorted_by(button) == 'descending'
    browser.switch_to.active_element.send_keys(Keys.SPACE)
    assert rows(browser)[0] == 'AN' and sorted_by(button) == 'ascending'


def test_missing_cells_come_last_either_way(browser):
    browser.execute_script(
        "document.querySelector('#hml-table-2 td.ours').dataset.v = ''"
    )  # AN on VOC12
    button = header(browser, 'ours, VOC12')
    for _ in range(2):
        button.click()
        assert rows(browser)[-1] == 'AN'


def test_a_table_tells_its_state_and_its_order(browser):
    done, ranks = shown(browser, '#hml-table-2 .state')
    assert done == '24 of 24 cells done' and ranks.startswith('Rank correlation')


def test_a_cell_has_both_gains_and_a_mark_and_its_level_behind_it(browser):
    cells = browser.find_elements(By.CSS_SELECTOR, '#hml-table-2 tbody tr:nth-child(2) td')
    assert [cell.text for cell in cells[2:4]] == ['+2.8', '+10.0±1.3']  # LS on COCO
    assert len(cells[3].find_elements(By.CSS_SELECTOR, 'svg .p')) == 1
    assert cells[3].get_attribute('data-level') == '66.9 / 74.5 ± 2.2'
    baseline = browser.find_elements(By.CSS_SELECTOR, '#hml-table-2 tbody tr:first-child td')
    assert baseline[3].text == '64.5±2.2' and not baseline[3].find_elements(By.TAG_NAME, 'svg')


def test_the_filter_leaves_what_is_missing(browser):
    browser.find_element(By.ID, 'only-missing').click()
    assert rows(browser) == [] and shown(browser, '#hml-figure-3') == []
    unfold(browser, 'hml-table-3', 'hml-figure-4')
    assert shown(browser, '#hml-table-3 tbody th') == ['LS', 'HML (Ours)']
    assert shown(browser, '#hml-figure-4 code') == ['spml sweep hml --figure 4 --suite photos']
    browser.find_element(By.ID, 'only-missing').click()
    assert rows(browser) == PAPERS_ORDER and shown(browser, '#hml-figure-3')


def test_a_link_leads_to_a_figure_that_is_drawn(browser):
    link = browser.find_element(By.CSS_SELECTOR, 'nav a[href="#hml-figure-3"]')
    link.click()
    figure = browser.find_element(By.CSS_SELECTOR, '#hml-figure-3 img')
    assert browser.current_url.endswith('#hml-figure-3')
    WebDriverWait(browser, 60).until(lambda b: figure.get_property('naturalWidth') == 321)
    browser.execute_script(
        "document.documentElement.style.scrollBehavior = 'auto'; location.hash = ''; "
        "location.hash = '#hml-figure-3'"
    )
    WebDriverWait(browser, 60).until(
        lambda b: (
            0
            <= b.execute_script(
                "return document.querySelector('#hml-figure-3').getBoundingClientRect().top"
            )
            < 300
        )
    )


def test_every_link_within_the_page_has_its_goal(browser):
    lost = browser.execute_script(
        "return [...document.querySelectorAll('a[href^=\"#\"]')].filter(a => "
        "!document.getElementById(a.hash.slice(1))).map(a => a.hash)"
    )
    assert lost == []


def test_a_command_is_copied_or_selected(browser):
    unfold(browser, 'hml-table-3')
    button = browser.find_element(By.CSS_SELECTOR, '#hml-table-3 .copy')
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    browser.execute_script(
        'window.said = []; '
        'new MutationObserver(() => window.said.push(arguments[0].textContent))'
        '.observe(arguments[0], {childList: true})',
        button,
    )
    button.click()  # the word stays for a second and a half only
    assert WebDriverWait(browser, 60).until(lambda b: b.execute_script('return window.said'))[
        0
    ] in ('copied', 'selected')


def test_light_and_dark(browser):
    def background():
        return browser.execute_script('return getComputedStyle(document.body).backgroundColor')

    light = background()
    browser.find_element(By.ID, 'theme').click()
    assert background() != light
    browser.find_element(By.ID, 'theme').click()
    assert background() == light
    browser.execute_cdp_cmd(
        'Emulation.setEmulatedMedia',
        {'features': [{'name': 'prefers-color-scheme', 'value': 'dark'}]},
    )
    browser.execute_script("delete document.documentElement.dataset.theme; localStorage.clear()")
    assert background() != light
    browser.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': []})


# ---- the board


def of_rows(browser, selector):
    "The texts of the board's visible rows, asked for at once."
    script = (
        "return [...document.querySelectorAll('#board-table tbody tr[data-row]')].filter(tr => "
        "tr.getClientRects().length).map(tr => tr.querySelector(arguments[0]).innerText)"
    )
    return [' '.join(text.split()) for text in browser.execute_script(script, selector)]


def board(browser):
    return of_rows(browser, 'th a')


def column(browser, k):
    return of_rows(browser, f'td:nth-child({k + 1})')


def choose(browser, name, value):
    Select(browser.find_element(By.CSS_SELECTOR, f'.switches [name={name}]')).select_by_value(value)


def of_board(browser, label):
    button = next(
        each
        for each in browser.find_elements(By.CSS_SELECTOR, '#board-table thead button')
        if label in each.text
    )
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    return button


# each group in its order: rows on four sets; those with all labels known
ON_FOUR = ['LS', 'WAN', 'EPR', 'ROLE', 'HML', 'AN']
BY_MEAN = [*ON_FOUR, 'BCE']
MEAN, SAME, SECONDS, COCO = 1, 2, 3, 5  # columns of the board


def test_the_board_is_the_first_screen_and_begins_with_the_highest_mean_gain(browser):
    assert board(browser) == BY_MEAN
    gains = [text.rpartition(' ±') for text in column(browser, MEAN)]
    assert [gain or half for gain, _, half in gains] == [
        *('+10.0', '+8.0', '+6.0', '+4.0', '+2.0', '0 baseline', '+20.0')
    ]
    assert column(browser, SAME)[4:6] == ['–', '0 baseline']
    assert set(column(browser, SECONDS)) <= {'1', '2'}
    table = "return document.querySelector('#board-table tbody').getBoundingClientRect().top"
    assert browser.execute_script(table) < 900
    assert column(browser, COCO) == [
        '+10.0 ±1.3',
        '+8.0 ±1.3',
        '+6.0 ±1.3',
        '+4.0 ±1.3',
        '+2.0 ±1.3',
        '0 baseline',
        '+20.0 ±1.3',
    ]
    assert len(browser.find_elements(By.CSS_SELECTOR, '#board-table td.first svg')) == 6
    assert 'Not run yet: Corel 5k; CCP' in browser.find_element(By.ID, 'board').text
    said = browser.find_element(By.CSS_SELECTOR, 'header p').text
    for words in ('VOC 2012, photos with animals; COCO, 18 classes', '10 runs', '10 seeds'):
        assert words in said


def test_the_boards_headers_sort_within_groups_by_mouse_and_keyboard(browser):
    button = of_board(browser, 'COCO, 18 classes')
    button.click()
    assert board(browser) == BY_MEAN and sorted_by(button) == 'descending'
    button.click()
    assert board(browser) == [*ON_FOUR[::-1], 'BCE']
    mean = of_board(browser, 'mean gain')
    assert sorted_by(mean) == 'none'
    browser.execute_script('arguments[0].focus()', mean)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert board(browser) == BY_MEAN and sorted_by(mean) == 'descending'


def test_the_board_switches_and_keeps_its_order(browser):
    first = [column(browser, k) for k in range(1, 8)]
    of_board(browser, 'COCO, 18 classes').click()
    choose(browser, 'show', 'level')
    assert column(browser, COCO)[:2] == ['74.5 ±2.2', '72.5 ±2.2']
    assert 'Test mAP' in browser.find_element(By.ID, 'board-says').text
    choose(browser, 'show', 'gain')
    assert column(browser, COCO)[4:6] == ['0 baseline', '– no AN']  # HML: no AN on its head
    choose(browser, 'show', 'seconds')
    assert set(column(browser, COCO)) == {'1.5'}
    # of which this record has nothing
    choose(browser, 'trained', 'photos_finetune')
    assert board(browser) == []
    command = 'spml sweep methods --suite photos_finetune'
    assert command in browser.find_element(By.ID, 'board-says').text
    choose(browser, 'trained', 'photos')
    choose(browser, 'choice', 'observed')
    assert set(column(browser, COCO)) == {'not run'} and set(column(browser, MEAN)) == {'–'}
    choose(browser, 'choice', 'clean')
    choose(browser, 'show', 'plain')
    of_board(browser, 'mean gain').click()
    assert [column(browser, k) for k in range(1, 8)] == first


def test_the_board_filters(browser):
    choose(browser, 'head', 'cosine')
    assert board(browser) == ['HML'] and '1 of ' in browser.find_element(By.ID, 'board-says').text
    browser.find_element(By.ID, 'idle').click()
    assert 'HML (fixed)' in board(browser) and 'ROLE' in board(browser)
    assert 'not run' in column(browser, COCO)  # ROLE on the cosine head
    browser.find_element(By.ID, 'idle').click()
    choose(browser, 'head', '')
    assert board(browser) == BY_MEAN
    choose(browser, 'paper', 'hml')
    assert (
        board(browser) == BY_MEAN
        and 'Not run: HML (fixed).' in browser.find_element(By.ID, 'board-says').text
    )


def test_a_card_opens_and_closes_by_keyboard(browser):
    link = browser.find_element(By.CSS_SELECTOR, '#board-table tbody th a[href="#card-hml"]')
    browser.execute_script('arguments[0].focus()', link)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    (dialog,) = shown(browser, 'dialog')
    for part in (
        'HML',
        'margin of the angle',
        'Its notebook',
        'VOC 2012, photos with animals',
        'search, 1 → all draws',
        'HML Table 2: VOC 2012 +4.0† (ours +2.0 ± ',
        'Claims of its paper',
    ):
        assert part in dialog
    assert (
        browser.find_element(By.CSS_SELECTOR, 'dialog a[href$=".ipynb"]')
        .get_attribute('href')
        .endswith('nbs/methods/hml.ipynb')
    )
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert shown(browser, 'dialog') == [] and browser.switch_to.active_element == link


def test_a_number_opens_its_runs_and_the_command_by_keyboard(browser, page):
    known = tables.read_recorded_runs(page.parent / 'runs.csv')
    for selector, title in (
        (
            '#board-table tbody tr[data-row] td:nth-child(6) button',
            'LS, linear head, on COCO, 18 classes',
        ),
        ('#hml-table-2 tbody tr:nth-child(2) td.ours button', 'Table 2: LS'),
    ):
        browser.execute_script(
            'arguments[0].focus()', browser.find_element(By.CSS_SELECTOR, selector)
        )
        browser.switch_to.active_element.send_keys(Keys.SPACE)
        assert shown(browser, 'dialog h3') == [title]
        command = shown(browser, 'dialog code')[0]
        line = known[known.run == command.removeprefix('spml train --like ')]
        assert command.startswith('spml train --like ') and (
            line.loss.item(),
            line.seed.item(),
        ) == ('ls', 0)
        runs = browser.find_element(By.CSS_SELECTOR, 'dialog details')
        runs.find_element(By.TAG_NAME, 'summary').send_keys(Keys.ENTER)
        assert len(runs.find_elements(By.CSS_SELECTOR, 'tbody tr')) == 10
        browser.find_element(By.CSS_SELECTOR, 'dialog .close').send_keys(Keys.ENTER)
        assert shown(browser, 'dialog') == []


@pytest.mark.parametrize('theme', ['light', 'dark'])
@pytest.mark.parametrize('opened', ['', '#board-table tbody th a', '#board-table tbody td button'])
def test_axe_finds_nothing_serious(browser, theme, opened):
    browser.execute_script(
        f"document.documentElement.dataset.theme = '{theme}'; "
        "for (const part of document.querySelectorAll('main details')) part.open = true"
    )
    if opened:
        browser.execute_script('document.querySelector(arguments[0]).click()', opened)
    assert find_axe_violations(browser, passes=15) == []


def test_the_page_stays_small_and_prints_without_its_switches(browser, page):
    assert page.stat().st_size < 2**20
    browser.execute_cdp_cmd('Emulation.setEmulatedMedia', {'media': 'print'})
    assert shown(browser, '.switches') == shown(browser, '.bar') == [] and shown(
        browser, '#board-table'
    )
    browser.execute_cdp_cmd('Emulation.setEmulatedMedia', {'media': ''})


def test_a_phone_shows_cards_within_its_width(browser):
    browser.execute_cdp_cmd(
        'Emulation.setDeviceMetricsOverride',
        {'width': 390, 'height': 800, 'deviceScaleFactor': 2, 'mobile': True},
    )
    browser.execute_script("document.querySelector('#board-table tbody th a').click()")
    page, left, right = browser.execute_script(
        "const box = document.querySelector('dialog').getBoundingClientRect(); return "
        "[document.documentElement.scrollWidth, box.left, box.right]"
    )
    browser.execute_cdp_cmd('Emulation.clearDeviceMetricsOverride', {})
    assert page <= 390 and 0 <= left and right <= 390


def test_a_phone_scrolls_tables_not_the_page(browser):
    browser.execute_cdp_cmd(
        'Emulation.setDeviceMetricsOverride',
        {'width': 390, 'height': 800, 'deviceScaleFactor': 2, 'mobile': True},
    )
    wide, inside = browser.execute_script(
        "return [document.documentElement.scrollWidth, document.querySelector('#hml-table-2 "
        ".scroll').scrollWidth]"
    )
    browser.execute_cdp_cmd('Emulation.clearDeviceMetricsOverride', {})
    assert wide <= 390 < inside


def test_the_policy_stops_what_is_not_the_pages_own(chromium, page):
    """The checks above can fail: a page with a foreign script and a foreign picture is noticed, and
    neither runs.
    """
    harmed = page.with_name('harmed.html')
    harmed.write_text(
        page.read_text().replace(
            '</main>',
            '<script>document.title = "run"</script><img '
            'src="https://example.invalid/x.png"></main>',
        )
    )
    chromium.get('about:blank')
    for kind in ('browser', 'performance'):
        chromium.get_log(kind)
    chromium.get(harmed.as_uri())
    assert chromium.title != 'run' and len(chromium.get_log('browser')) >= 2
    assert [event.get('blockedReason') for event in events(chromium, 'Network.loadingFailed')] == [
        'csp'
    ]


def test_without_a_script_the_page_still_reads_and_filters(chromium, page, tmp_path):
    bare = tmp_path / 'bare.html'
    bare.write_text(page.read_text().split('<script>')[0] + '</body></html>')
    chromium.get(bare.as_uri())
    assert (
        rows(chromium) == PAPERS_ORDER
        and board(chromium) == BY_MEAN
        and shown(chromium, '.switches') == []
    )
    without = [column(chromium, k) for k in range(1, 8)]
    chromium.get(page.as_uri())
    assert without == [
        column(chromium, k) for k in range(1, 8)
    ]  # the page's script writes the same cells again
    chromium.get(bare.as_uri())
    chromium.find_element(By.ID, 'only-missing').click()
    unfold(chromium, 'hml-table-3')
    assert rows(chromium) == [] and shown(chromium, '#hml-table-3 tbody th') == ['LS', 'HML (Ours)']
