"""The answers to requests that fail: each error of the dashboard's answers with its status."""

from typing import Final

from aiohttp import web

from stan.errors import StanError, Unanswered
from stan.monitor.dashboard.tables import BadQuestionError
from stan.monitor.dashboard.visible import NotAllowedError
from stan.monitor.json_answer import json_answer
from stan.monitor.pages import UnknownNameError

ERRORS: Final = (BadQuestionError, NotAllowedError, UnknownNameError, StanError)
"""Errors of a request; others are of the program."""
_STATUS: Final = {BadQuestionError: 400, NotAllowedError: 403, UnknownNameError: 404, Unanswered: 503}


def failed_answer(error: Exception, otherwise: int) -> web.Response:
    """Return the answer to a request that failed with one of ERRORS; *otherwise*: the status of errors of the cluster."""
    text = f"The cluster does not answer now: {error}" if isinstance(error, Unanswered) else str(error)
    return json_answer({"error": text}, _STATUS.get(type(error), otherwise))
