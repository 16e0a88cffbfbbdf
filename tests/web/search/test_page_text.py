"""HTML becomes text: without scripts and menus, with headings, items and links."""

from __future__ import annotations

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
    assert read_html("<script/>gone", "https://x.example/").text == "gone"


@given(st.text(alphabet="<>/ap=\"'!-&;#[ \n\0scriptle", max_size=200))
def test_anything_is_read(text: str):
    read_html(text, "https://x.example/")
