"""HTML becomes text: without scripts and menus, with headings, items and links."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise.web.search.page_text import read_html

HTML = """<!doctype html><html><head><title> A &amp; B </title><style>p {}</style><script>alert("x</p>")</script></head>
<body><nav><a href="/menu">Menu</a></nav><h2>Head</h2><p>One <b>two</b>&nbsp;three<br>four</p><ul><li>a<li>b</ul>
<a href="/one#top">1</a><a href="https://other.example/two">2</a><a href="/one">again</a><a href="http://[bad">3</a>
<noscript>No</noscript><p>End"""


def test_a_page():
    page = read_html(HTML, "https://site.example/dir/page")
    assert page.title == "A & B"
    assert page.text.split("\n") == [
        *("## Head", "", "One two three", "four", ""),
        *("- a", "- b", ""),
        *("12again3", "", "End"),
    ]
    assert page.links == (
        "https://site.example/menu",
        "https://site.example/one",
        "https://other.example/two",
    )


def test_what_never_ends_ends_with_the_page():
    assert read_html("<p>a<script>b", "https://x.example/").text == "a"
    assert read_html("</script></p><p>a", "https://x.example/").text == "a"
    assert read_html("a<script/>gone", "https://x.example/").text == "a", "as browsers do"


@given(st.text(alphabet="<>/ap=\"'!-&;#[ \n\0scriptle", max_size=200))
def test_anything_is_read(text: str):
    read_html(text, "https://x.example/")


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        *("<!--", "<a ", "</", "<![", "<?", "<script>", "<a x='", "<a x=", "<a x='\"", "&#", "<", "<title>"),
        *("<nav>", "</nav>", "<nav><form></nav>", "<p>word</p>", "<a href=/x>", "\n\r", "<a b=c ", "<a ' "),
    ],
)
def test_no_page_takes_long(unit: str):
    """Each of these is quadratic in one parser or another: at this length that is many seconds and more."""
    for html in (unit * ((1 << 17) // len(unit)), "<nav>" * 20_000 + unit * 20_000 + "</x>" * 20_000):
        begun = time.process_time()
        read_html(html, "https://x.example/")
        assert time.process_time() - begun < 3


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("a < b and c > d", "a < b and c > d"),
        ("a<!-- <p>no --> b", "a b"),
        ("a<!--> b", "a b"),
        ("<P CLASS='x>y' data=\"'\">in</P>", "in"),
        ("<a title=it's>in</a>", "in"),
        ("<STYLE>no</style >yes", "yes"),
        ("<nav><form>no</nav>yes</form>", "yes"),
        ("yes<p title='no", "yes"),
        ("a &amp;lt; b&#" + "9" * 5000 + ";", "a &amp;lt; b&#" + "9" * 5000 + ";"),
    ],
)
def test_odd_markup(html: str, text: str):
    assert read_html(html, "https://x.example/").text == text


def test_links_however_they_are_written():
    html = """<a data-href="/no" HREF = '/a?b=1&amp;c=2'>x</a><a href=/plain>y</a><a title="href" href="/t">z</a><a>w</a>"""
    links = read_html(html, "https://x.example/").links
    assert links == ("https://x.example/a?b=1&c=2", "https://x.example/plain", "https://x.example/t")
