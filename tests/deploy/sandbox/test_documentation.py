"""The examples of docs/sandbox.md run as they stand, in their order."""

import re
import shlex
from pathlib import Path
from typing import Any

import httpx

DOCS = Path(__file__).parents[3] / "docs" / "sandbox.md"


async def test_every_curl_example_works(http: httpx.AsyncClient, sandbox: Any):
    lines = [line for block in re.findall(r"```sh\n(.*?)```", DOCS.read_text(), re.DOTALL) for line in block.splitlines()]
    names = {"SANDBOX": sandbox.url}
    for line in lines:
        words = shlex.split(re.sub(r"\$([A-Z]+)", lambda found: names[found[1]], line))
        method = words[words.index("-X") + 1] if "-X" in words else "GET"
        body = words[words.index("-d") + 1] if "-d" in words else None
        [url] = [word for word in words if word.startswith("http://") and word != body]
        answer = await http.request(method, url, content=body)
        assert answer.status_code == 200, (line, answer.text)
        made = answer.json()
        if isinstance(made, dict) and made.get("object") in ("refund", "dispute"):
            names[made["object"].upper()] = made["id"]
    assert len(lines) == 24
    sandbox.control("POST", "/reset")
