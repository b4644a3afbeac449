"""A browser without a window, for tests of pages. Needs Chromium and its driver (Debian: chromium,
chromium-driver) and selenium.
"""

import contextlib
import shutil

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None
)
DRIVER = shutil.which('chromedriver')
needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason='chromium and chromedriver are not installed'
)
FLAGS = (
    '--headless',
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    '--force-prefers-reduced-motion',
    '--window-size=1300,900',
)


@contextlib.contextmanager
def open_chromium(profile):
    """A started browser; `profile` is an empty folder for what it keeps."""
    webdriver = pytest.importorskip('selenium.webdriver', reason='selenium is not installed')
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f'--user-data-dir={profile}'):
        options.add_argument(flag)
    options.set_capability('goog:loggingPrefs', {'browser': 'ALL', 'performance': 'ALL'})
    driver = webdriver.Chrome(service=Service(DRIVER), options=options)
    try:
        yield driver
    finally:
        driver.quit()


def find_axe_violations(browser, passes: int) -> list:
    """What axe finds serious on the open page, with the first places of each.

    Args:
        browser: as from `open_chromium`.
        passes: rules that must hold somewhere on the page, else axe saw too little of it.
    """
    axe = pytest.importorskip(
        'axe_core_python.selenium', reason='axe_core_python is not installed'
    ).Axe()
    browser.set_script_timeout(300)  # of a busy machine
    found = axe.run(browser)
    assert len(found['passes']) > passes
    return [
        (one['id'], [node['html'][:120] for node in one['nodes'][:3]])
        for one in found['violations']
        if one['impact'] in ('serious', 'critical')
    ]


def resize(browser, width: int, height: int = 800):
    """Show the page as a window or a phone of so many pixels does."""
    browser.execute_cdp_cmd(
        'Emulation.setDeviceMetricsOverride',
        {'width': width, 'height': height, 'deviceScaleFactor': 1, 'mobile': width < 500},
    )
