"""The table of refusals: each text leads to its code, whatever stands in it, and every answer has a field for the code."""

import re

import pytest
import stan_client
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.proto import extension_pb2
from stan_protocol.refusals import TEXTS, code_of, refused

from stan.core.requests.table import REQUESTS

VARYING = re.compile(r"\{\d?\}")
VALUES = (("x",) * 9, ("",) * 9, ('"a: b"',) * 9, ("1", "22", "333", "4", "5", "6", "7", "8", "9"))


@pytest.mark.parametrize("code", TEXTS)
def test_each_text_leads_to_its_code(code):
    for values in VALUES:
        text = TEXTS[code].format(*values)
        assert code_of(text) == code_of(f"{text}: and why") == code


def test_codes_and_texts_are_one_to_one():
    assert len({VARYING.sub("{}", text) for text in TEXTS.values()}) == len(TEXTS)
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", code) for code in TEXTS)


@pytest.mark.parametrize("code", TEXTS)
def test_no_template_covers_the_text_of_another_refusal(code):
    """So a text has one code, in whichever order templates are tried."""
    pattern = re.compile(".*".join(map(re.escape, VARYING.split(TEXTS[code]))))
    assert [other for other, text in TEXTS.items() if pattern.fullmatch(text.format(*VALUES[0]))] == [code]


@given(st.text())
def test_other_texts_have_no_code(text):
    assert code_of(text) == code_of(f"{TEXTS['busy']} {text}") == code_of(f"stan:{text}") == ""


def test_every_answer_carries_a_refusal_with_its_code():
    for kind in REQUESTS.values():
        answer = refused(kind.response(), TEXTS["row_too_large"].format(3))
        again = type(answer).FromString(answer.SerializeToString())
        assert (again.error, again.error_code) == (b"stan: row 3 is larger than a message may be", "row_too_large")
        assert (
            answer.DESCRIPTOR.fields_by_name["error_code"].number == extension_pb2.FetchResponse.ERROR_CODE_FIELD_NUMBER
        )


def test_the_error_of_the_client_has_the_code_of_the_answer_or_of_the_text():
    errors = [stan_client.ServerError("a text"), stan_client.ServerError("a text", "busy")]
    errors.append(stan_client.ServerError(TEXTS["client_registered"]))
    assert [(str(error), error.code) for error in errors] == [
        ("a text", ""),
        ("a text", "busy"),
        ("stan: clientID already registered", "client_registered"),
    ]
