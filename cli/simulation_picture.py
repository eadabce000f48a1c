"""The picture of a simulation as a file: an SVG that stands alone, or a page of HTML around it. Needs nothing from elsewhere and runs no script."""

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from cli.problems import Misused
from cli.simulation_view import headline, to
from refunds.policy.simulation import Way

SUFFIXES = (".svg", ".html")
_WIDTH, _LEFT, _BAR, _ROW = 820, 210, 460, 52
_LINE, _CHARACTERS = 18, 88
"""The height of a line of the title, and how many of its letters fit into one."""
_COLOURS = {"before": "#9aa5b1", "after": "#2563eb"}


def check(path: Path) -> None:
    """Raise :class:`cli.problems.Misused` for a name that says no kind of picture."""
    if path.suffix.lower() not in SUFFIXES:
        raise Misused(f"--picture: {path.name} says no kind of picture; name it .svg or .html.")


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write the picture of a result, by the file's name as SVG or HTML."""
    drawn = svg(result)
    path.write_text(drawn if path.suffix.lower() == ".svg" else _page(result, drawn), encoding="utf-8")


def svg(result: Mapping[str, Any]) -> str:
    """Two bars for each way that a request can go, before and after, to one scale, with their numbers beside them."""
    shown = {way: both for way, both in result["outcomes"].items() if both["before"] or both["after"]}
    most = max((max(both.values()) for both in shown.values()), default=1)
    title = headline(result)
    lines = _wrapped(title)
    first = 40 + _LINE * len(lines)
    height = first + 14 + _ROW * max(len(shown), 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" font-family="system-ui, sans-serif" font-size="14">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *(f'<text x="20" y="{26 + _LINE * at}" font-weight="600">{escape(line)}</text>' for at, line in enumerate(lines)),
    ]
    for at, (way, both) in enumerate(shown.items()):
        top = first + at * _ROW
        parts.append(f'<text x="{_LEFT - 12}" y="{top + 24}" text-anchor="end">{escape(Way(way).words)}</text>')
        for number, (name, colour) in enumerate(_COLOURS.items()):
            length, y = both[name] * _BAR // most, top + number * 20
            parts.append(f'<rect x="{_LEFT}" y="{y}" width="{max(length, 1 if both[name] else 0)}" height="17" fill="{colour}"/>')
            parts.append(f'<text x="{_LEFT + length + 8}" y="{y + 13}" font-size="12">{name} {both[name]:,}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _wrapped(title: str) -> list[str]:
    """The title in lines that fit, broken where the second half begins and where a line is full: the name of a file may be of any length."""
    head, _, tail = title.partition(", ")
    return [line for part in ([f"{head},", tail] if tail else [head]) for line in wrap(part, _CHARACTERS)]


def _page(result: Mapping[str, Any], drawn: str) -> str:
    rows = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in _moves(result))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Policy simulation</title>
<style>body{{font-family:system-ui,sans-serif;max-width:{_WIDTH}px;margin:2rem auto}}td,th{{padding:.25rem 1rem .25rem 0;text-align:left}}</style></head>
<body>
{drawn}<table><tr><th>from</th><th>to</th><th>requests</th></tr>{rows}</table>
</body></html>
"""


def _moves(result: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for move in result["moves"]:
        if move["requests"]:
            yield Way(move["before"]).words, to(move), f"{move['requests']:,}"
