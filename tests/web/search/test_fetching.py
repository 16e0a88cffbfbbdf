"""Every safeguard of reading pages, each with a page that only it keeps out."""

from __future__ import annotations

import asyncio
import gzip
import ipaddress
import zlib
from collections.abc import Callable

import httpx
import pytest

from edgewise.web.search.fetching import Fetched, Fetcher, FetchError, check_url, is_public
from edgewise.web.search.limits import Limits
from tests.web.search.stands import PUBLIC, Handler, page, web

HTML = "<html><title>A page</title><body><p>Hello there</p></body></html>"


def anyone(host: str) -> bool:
    return True


async def read(fetcher: Fetcher, url: str, may: Callable[[str], bool] = anyone) -> Fetched:
    return await fetcher.read(url, may)


async def refused(fetcher: Fetcher, url: str, why: str, may: Callable[[str], bool] = anyone) -> None:
    with pytest.raises(FetchError, match=why):
        await fetcher.read(url, may)


def redirect(to: str) -> Handler:
    return lambda request: httpx.Response(302, headers={"location": to})


async def test_a_page_is_read():
    asked: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return page(HTML)(request)

    found = await read(web({"a.example": handler}), "https://a.example/x?q=1")
    assert (found.page.title, found.page.text) == ("A page", "Hello there")
    (request,) = asked
    assert request.url == f"https://{PUBLIC}/x?q=1", "the address that was checked, not the name"
    assert not {"cookie", "authorization", "referer", "x-api-key"} & set(request.headers)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://a.example/", "not an https address"),
        ("ftp://a.example/", "not an https address"),
        ("file:///etc/passwd", "not an https address"),
        ("https://user:secret@a.example/", "no name or password"),
        ("https://a.example:8443/", "names a port"),
        ("https:///x", "names no host"),
        ("https://[::1", "no address"),
        ("https://a.example:99999/", "no address"),
        (f"https://{'a' * 70}.example/", "names no host"),
    ],
)
def test_addresses_that_are_not_read(url: str, why: str):
    with pytest.raises(FetchError, match=why):
        check_url(url)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.5.5", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("224.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1"),
        *("::1", "::", "fe80::1", "fc00::1", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "2002:7f00:1::", "2002:a9fe:a9fe::1"),
        *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2001:0:7f00:1::1"),
        *("64:ff9b:1::7f00:1", "3fff::1", "5f00::1", "fec0::1", "192.88.99.1"),
    ],
)
async def test_addresses_inside_are_not_read(address: str):
    assert not is_public(ipaddress.ip_address(address))
    fetcher = web({"a.example": page(HTML)}, {"a.example": [address]})
    await refused(fetcher, "https://a.example/", "not a public address")


@pytest.mark.parametrize(
    "address", [PUBLIC, "2606:2800:21f:cb07::1", "64:ff9b::5db8:d70e", "::ffff:93.184.215.14"]
)
def test_addresses_outside_are(address: str):
    assert is_public(ipaddress.ip_address(address))


async def test_all_addresses_of_a_name_count():
    fetcher = web({"a.example": page(HTML)}, {"a.example": [PUBLIC, "127.0.0.1"]})
    await refused(fetcher, "https://a.example/", "not a public address")


async def test_a_name_that_changes_its_mind_is_not_asked_twice():
    """Rebinding: the second answer would lead inside; what is connected to is what was checked."""
    answers = iter([[PUBLIC], ["127.0.0.1"]])
    went: list[str] = []

    async def resolve(host: str) -> list[str]:
        return next(answers)

    def handle(request: httpx.Request) -> httpx.Response:
        went.append(request.url.host)
        return page(HTML)(request)

    await read(Fetcher(Limits(), resolve, httpx.MockTransport(handle)), "https://a.example/")
    assert went == [PUBLIC]


async def test_an_address_written_as_a_name():
    async def resolve(host: str) -> list[str]:
        return [host]

    fetcher = Fetcher(Limits(), resolve, httpx.MockTransport(page(HTML)))
    await refused(fetcher, "https://127.0.0.1/", "not a public address")
    await refused(fetcher, "https://[::ffff:169.254.169.254]/", "not a public address")


async def test_names_without_an_address():
    await refused(web({}), "https://a.example/", "has no address")


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("http://a.example/", "not an https address"),
        ("https://inside.example/", "not a public address"),
        ("https://other.example/", "neither found"),
        ("https://a.example:22/", "names a port"),
        ("file:///etc/passwd", "not an https address"),
    ],
)
async def test_redirects_are_looked_at_anew(to: str, why: str):
    sites = {"a.example": redirect(to), "inside.example": page(HTML), "other.example": page(HTML)}
    fetcher = web(sites, {"inside.example": ["127.0.0.1"]})
    await refused(fetcher, "https://a.example/", why, lambda host: host != "other.example")


async def test_redirects_end():
    def handler(request: httpx.Request) -> httpx.Response:
        step = int(request.url.path[1:] or 0)
        return page(HTML)(request) if step == 3 else redirect(f"/{step + 1}")(request)

    found = await read(web({"a.example": handler}), "https://a.example/0")
    assert found.url == "https://a.example/3"
    await refused(web({"a.example": redirect("/x")}), "https://a.example/", "more than 3 redirects")


async def test_hosts_nobody_named():
    await refused(web({"a.example": page(HTML)}), "https://a.example/", "neither found", lambda host: False)


def body_of(content: bytes, **headers: str) -> Handler:
    whole = {"content-type": "text/html", **headers}
    return lambda request: httpx.Response(200, headers=whole, stream=httpx.ByteStream(content))


@pytest.mark.slow
async def test_sizes():
    big = body_of(b"x" * (3 << 20))
    await refused(web({"a.example": big}), "https://a.example/", "larger than 2 MiB")
    bomb = body_of(gzip.compress(b"x" * (200 << 20)), **{"content-encoding": "gzip"})
    await refused(web({"a.example": bomb}), "https://a.example/", "larger than 2 MiB")
    for packed in (gzip.compress(HTML.encode()), zlib.compress(HTML.encode())):
        coding = "gzip" if packed[:2] == b"\x1f\x8b" else "deflate"
        found = await read(
            web({"a.example": body_of(packed, **{"content-encoding": coding})}), "https://a.example/"
        )
        assert found.page.text == "Hello there"
    await refused(
        web({"a.example": body_of(b"not gzip", **{"content-encoding": "gzip"})}),
        "https://a.example/",
        "damaged",
    )
    await refused(
        web({"a.example": body_of(b"x", **{"content-encoding": "br"})}), "https://a.example/", "not asked for"
    )


@pytest.mark.parametrize("kind", ["application/pdf", "image/png", "application/json", "text/css", ""])
async def test_only_pages_of_text(kind: str):
    fetcher = web({"a.example": body_of(b"data", **{"content-type": kind})})
    await refused(fetcher, "https://a.example/", "not a page of text")


@pytest.mark.parametrize("status", [204, 404, 500])
async def test_answers_that_are_no_page(status: int):
    await refused(
        web({"a.example": lambda request: httpx.Response(status)}), "https://a.example/", f"answered {status}"
    )


async def test_pages_that_do_not_come():
    async def never(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        raise AssertionError

    async def resolve(host: str) -> list[str]:
        return [PUBLIC]

    fetcher = Fetcher(Limits(page_timeout_s=0.05), resolve, httpx.MockTransport(never))
    await refused(fetcher, "https://a.example/", "did not come within 0.05 s")

    def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no")

    await refused(web({"a.example": broken}), "https://a.example/", "cannot be read")


async def test_plain_text_and_odd_letters():
    plain = body_of(
        "naïve\r\n\r\n\r\n\r\n  text".encode("latin-1"), **{"content-type": "text/plain; charset=latin-1"}
    )
    assert (await read(web({"a.example": plain}), "https://a.example/")).page.text == "naïve\n\ntext"
    greek = body_of("\u03b1".encode("iso-8859-7"), **{"content-type": "text/plain; charset=ISO-8859-7"})
    assert (await read(web({"a.example": greek}), "https://a.example/")).page.text == "\u03b1"
    for codec in (
        "punycode",
        "idna",
        "unicode-escape",
        "utf-7",
    ):  # Python's own: not of the web, and some slow
        text = body_of(b"a\\u03b1 -b", **{"content-type": f"text/plain; charset={codec}"})
        assert (await read(web({"a.example": text}), "https://a.example/")).page.text == "a\\u03b1 -b"
    odd = body_of(b"a \xff b", **{"content-type": "text/markdown; charset=no-such"})
    assert (await read(web({"a.example": odd}), "https://a.example/")).page.text == "a \ufffd b"
