"""The explorer's page in a real browser: run, stop, flip a token, tour, axe-core, hostile names."""

import pytest
from browsers import NoBrowserError, browsing

pytest.importorskip("uvicorn", reason="starlette and uvicorn are not installed")
from serving import served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    try:
        with browsing(tmp_path_factory.mktemp("browser")) as opened:
            yield opened
    except NoBrowserError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served") / "runs") as serving:
        yield serving


@pytest.fixture
def page(browser, server):
    """The explorer, entered by its first address; nothing is complained of."""
    browser.look()
    browser.open(server.address)
    yield f"http://127.0.0.1:{server.port}/"
    assert browser.complaints() == []


def test_a_search_is_watched_to_its_end(browser, page):
    browser.open(page, "#/watch?model=exact:urn&method=ppt-rb-analytic")
    browser.find("#run").click()
    browser.wait("document.querySelector('.chip')?.textContent.endsWith('done')")
    assert "J is 0.5" in browser.find("#told").text
