"""Templates to HTML. Every value is escaped: names of topics, errors and reasons are what anybody may have written."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageOf(Generic[T]):
    """One page of a list; pages are numbered from 1."""

    items: Sequence[T]
    page: int
    pages: int
    total: int

    @classmethod
    def of(cls, items: Sequence[T], page: int, length: int) -> "PageOf[T]":
        """Return the page of that number, or the last one where there are fewer."""
        pages = max(1, -(-len(items) // length))
        page = min(max(page, 1), pages)
        return cls(items[(page - 1) * length : page * length], page, pages, len(items))


STATIC: Final = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "icon-dark.svg": "image/svg+xml",
}
"""The files that a browser may ask for, and no other."""

NOT_KNOWN: Final = "-"
NO_BREAK: Final = "\u00a0"
STEP_OF_SIZES: Final = 1024


def page(request: Request, template: str, *, status_code: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401
    """Return a template's page; ``base`` is where the page is mounted, ``airflow`` where Airflow is."""
    base = request.scope.get("root_path", "")
    values |= {"base": base, "airflow": base.rpartition("/")[0], "now": datetime.now(UTC), "version": static_version()}
    return HTMLResponse(templates().get_template(template).render(values), status_code)


def static_file(name: str) -> Response:
    kind = STATIC[name]
    headers = {"cache-control": "private, max-age=3600"}
    return Response(static_content(name), media_type=kind, headers=headers)


@cache
def static_content(name: str) -> bytes:
    return files("kafka_ingest.page").joinpath("static", name).read_bytes()


@cache
def static_version() -> str:
    """Return what changes with the page's files, so that no browser shows old ones with a new page."""
    return hashlib.sha256(b"".join(map(static_content, STATIC))).hexdigest()[:12]


@cache
def templates() -> Environment:
    found = Environment(
        loader=PackageLoader("kafka_ingest.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "number": number,
        "moment": moment,
        "day_and_hour": "{:%m-%d %H:%M}".format,
        "age": age,
        "span": span,
        "size": size,
        "path_part": path_part,
    }
    return found


def number(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:,.0f}"


def moment(at: datetime | None) -> str:
    return NOT_KNOWN if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def age(at: datetime | None, now: datetime) -> str:
    return NOT_KNOWN if at is None else span((now - at).total_seconds())


def span(seconds: float | None) -> str:
    """Return a duration in its largest unit that is not below one."""
    if seconds is None:
        return NOT_KNOWN
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f}{NO_BREAK}{unit}"
    return f"{max(0, seconds):.0f}{NO_BREAK}s"


def size(of_bytes: int | None) -> str:
    if of_bytes is None:
        return NOT_KNOWN
    value = float(of_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < STEP_OF_SIZES:
            return f"{value:,.0f}{NO_BREAK}{unit}"
        value /= STEP_OF_SIZES
    return f"{value:,.1f}{NO_BREAK}TiB"


def path_part(text: str) -> str:
    """Return a text as one part of an address's path, whatever is in it."""
    return quote(text, safe="")
