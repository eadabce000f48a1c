"""``/docs``: the OpenAPI description as one page to read, made here, whole, without a script.

It asks no other host for anything, so it also reads on a machine without internet, and its content security policy allows nothing but its own style.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI, Response

from api.examples import example_of
from api.manual_style import STYLE

_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""What a browser may do with the page: show it, in its own style."""

_HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}
_LIMITS = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "from {}",
    "maximum": "up to {}",
    "exclusiveMinimum": "above {}",
    "exclusiveMaximum": "below {}",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "minProperties": "at least {} of them",
    "maxProperties": "at most {} of them",
    "pattern": "matches {}",
}
_WORDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "null": "null", "object": "object"}
_LONG = 12
"""A list of values longer than this is folded."""

Json = Mapping[str, Any]


def install(app: FastAPI) -> None:
    """Serve the page. It is made once, of the same description that ``/openapi.json`` gives."""
    made: list[str] = []

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        if not made:
            made.append(page(app.openapi()))
        return Response(made[0], headers=_HEADERS, media_type="text/html")


def page(description: Json) -> str:
    """The whole page for an OpenAPI 3.1 description: every call under its tag, and every schema."""
    info, by_tag = description["info"], _by_tag(description)
    schemas = dict(sorted(description["components"]["schemas"].items()))
    title = escape(f"{info['title']} {info['version']}")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: HTTP API</title>
<style>{STYLE}</style>
</head>
<body>
<a class="skip" href="#calls">Skip to the calls</a>
<div class="layout">
<nav aria-label="Contents">{"".join(_contents(by_tag))}<h2><a href="#schemas">Schemas</a></h2></nav>
<main>
<h1>{title}</h1>
{_prose(info.get("description", ""))}
<p>Send <code>Authorization: Bearer rfk_...</code> with each call, except where it says that no key is needed.
For programs the same is in <a href="/openapi.json">openapi.json</a>.</p>
<div id="calls">{"".join(_tag(tag, calls, schemas) for tag, calls in by_tag.items())}</div>
<h2 id="schemas">Schemas</h2>
{"".join(_schema(name, schema) for name, schema in schemas.items())}
</main>
</div>
</body>
</html>
"""


def _by_tag(description: Json) -> dict[str, list[tuple[str, str, Json]]]:
    """``(method, path, call)`` by the call's first tag, in the order of the description."""
    found: dict[str, list[tuple[str, str, Json]]] = {}
    for path, calls in description["paths"].items():
        for method, call in calls.items():
            found.setdefault((call.get("tags") or ["other"])[0], []).append((method.upper(), path, call))
    return found


def _anchor(method: str, path: str) -> str:
    return f"{method.lower()}{re.sub('[^A-Za-z0-9]+', '-', path)}".rstrip("-")


def _contents(by_tag: Mapping[str, list[tuple[str, str, Json]]]) -> Iterator[str]:
    for tag, calls in by_tag.items():
        entries = "".join(
            f'<li><a href="#{_anchor(method, path)}">{escape(call.get("summary", path))}</a> <span class="dim">{method}</span></li>'
            for method, path, call in calls
        )
        yield f'<h2><a href="#tag-{escape(tag)}">{escape(tag.capitalize())}</a></h2><ul>{entries}</ul>'


def _tag(tag: str, calls: list[tuple[str, str, Json]], schemas: Json) -> str:
    return (
        f'<section><h2 id="tag-{escape(tag)}">{escape(tag.capitalize())}</h2>{"".join(_call(*call, schemas) for call in calls)}</section>'
    )


def _call(method: str, path: str, call: Json, schemas: Json) -> str:
    key = '<p class="dim">No key is needed.</p>' if call.get("security") == [] else ""
    anchor = _anchor(method, path)
    return f"""<article aria-labelledby="{anchor}">
<h3 id="{anchor}">{escape(call.get("summary", ""))}</h3>
<p><code><span class="method">{method}</span> {escape(path)}</code></p>
{_prose(call.get("description", ""))}{key}
{_parameters(call.get("parameters", ()))}{_body(method, path, call, schemas)}{_answers(call["responses"])}</article>
"""


def _parameters(parameters: Any) -> str:
    rows = [
        (
            f"<code>{escape(one['name'])}</code>",
            escape(one["in"]) + (", required" if one.get("required") else ""),
            _type(one["schema"]),
            _about({**one["schema"], **({"description": one["description"]} if "description" in one else {})}),
        )
        for one in parameters
    ]
    return _titled("Parameters", _table(("name", "in", "type", "what"), rows)) if rows else ""


def _body(method: str, path: str, call: Json, schemas: Json) -> str:
    content = call.get("requestBody", {}).get("content", {})
    if "application/json" not in content:
        return ""
    schema = content["application/json"]["schema"]
    example = json.dumps(example_of(schema, schemas), indent=2, ensure_ascii=False)
    head = [f"{method} {path}", "Content-Type: application/json"]
    head += [] if call.get("security") == [] else ["Authorization: Bearer rfk_..."]
    head += [f"{one['name']}: case-77-1" for one in call.get("parameters", ()) if one["name"] == "Idempotency-Key"]
    shown = escape("\n".join([*head, "", example]))
    return _titled("Body", f"<p>{_type(schema)}, for example:</p><pre tabindex='0'><code>{shown}</code></pre>")


def _answers(responses: Json) -> str:
    rows = [
        (f"<code>{escape(status)}</code>", _prose(answer.get("description", "")), "<br>".join(_contained(answer.get("content", {}))))
        for status, answer in sorted(responses.items())
    ]
    return _titled("Answers", _table(("status", "when", "what"), rows))


def _contained(content: Json) -> Iterator[str]:
    for media_type, one in content.items():
        shape = _type(one["schema"]) if one.get("schema") else ""
        yield shape if media_type in ("application/json", "application/problem+json") else f"<code>{escape(media_type)}</code>"


def _schema(name: str, schema: Json) -> str:
    required = schema.get("required", ())
    rows = [
        (f"<code>{escape(field)}</code>", "yes" if field in required else "", _type(one), _about(one))
        for field, one in schema.get("properties", {}).items()
    ]
    fields = _table(("field", "always there", "type", "what"), rows) if rows else ""
    values = f"<p>{_values(schema['enum'])}</p>" if "enum" in schema else ""
    more = '<p class="dim">Nothing else is in it.</p>' if schema.get("additionalProperties") is False else ""
    return f"""<article aria-labelledby="schema-{escape(name)}"><h3 id="schema-{escape(name)}">{escape(name)}</h3>
{_prose(schema.get("description", ""))}{values}{fields}{more}</article>
"""


def _type(schema: Json) -> str:
    """What a value is, in words, with links to the schemas it names."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#schema-{name}">{name}</a>'
    for word, joined in (("anyOf", " or "), ("oneOf", " or "), ("allOf", " and ")):
        if word in schema:
            return joined.join(dict.fromkeys(_type(one) for one in schema[word]))
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    if "enum" in schema:
        return _values(schema["enum"])
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(_type({**schema, "type": one}) for one in kind)
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of names with {_type(schema['additionalProperties'])}"
    of_format = f" ({escape(schema['format'])})" if "format" in schema else ""
    return escape(_WORDS.get(kind, kind)) + of_format


def _values(values: list[Any]) -> str:
    shown = " ".join(f"<code>{escape(str(value))}</code>" for value in values)
    return shown if len(values) <= _LONG else f"<details><summary>one of {len(values)}</summary>{shown}</details>"


def _about(schema: Json) -> str:
    """The description of a field, its limits, what it is when left out, and an example."""
    said = [_prose(schema["description"])] if "description" in schema else []
    limits = list(dict.fromkeys(_limits(schema)))
    if limits:
        said.append(f"<p>{'; '.join(limits)}</p>")
    if schema.get("default") is not None:
        said.append(f"<p>left out: <code>{escape(json.dumps(schema['default'], ensure_ascii=False))}</code></p>")
    if schema.get("examples"):
        given = ", ".join(f"<code>{escape(json.dumps(one, ensure_ascii=False))}</code>" for one in schema["examples"])
        said.append(f"<p>such as {given}</p>")
    return "".join(said)


def _limits(schema: Json) -> Iterator[str]:
    for name, words in _LIMITS.items():
        if name in schema:
            value = str(schema[name])
            yield words.format(f"<code>{escape(value)}</code>" if name == "pattern" else escape(value))
    for one in (*schema.get("anyOf", ()), *([schema["items"]] if isinstance(schema.get("items"), Mapping) else ())):
        yield from _limits(one)


def _titled(title: str, what: str) -> str:
    return f"<h4>{title}</h4>{what}"


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _prose(text: str) -> str:
    """Paragraphs of a docstring: names in single or double backticks, and roles such as ``:class:`` before them, become code."""
    parts = [part for part in re.split(r"\n\s*\n", text.strip()) if part]
    marked = (re.sub(r"(?::[a-z]+:)?(`{1,2})~?([^`]+)\1", r"<code>\2</code>", escape(" ".join(part.split()))) for part in parts)
    return "".join(f"<p>{part}</p>" for part in marked)
