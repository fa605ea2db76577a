"""Answers in JSON, with the rules for browsers."""

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from stan.monitor.guard import HEADERS


def encoded(value: Mapping[str, Any]) -> bytes:
    """Return *value* as short JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def json_answer(value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an answer that no browser keeps."""
    told = {**HEADERS, "Content-Type": "application/json", "Cache-Control": "no-store", **(headers or {})}
    return web.Response(status=status, body=encoded(value), headers=told)
