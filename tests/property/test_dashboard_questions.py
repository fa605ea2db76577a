"""Whatever a browser, or somebody who is none, asks the dashboard: a request that means something, or a refusal in words."""

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from stan.config import Config, MonitorConfig
from stan.monitor.dashboard.actions import ACTIONS
from stan.monitor.dashboard.formatting import key_of, name_of_key
from stan.monitor.dashboard.tables import BadQuestionError, TableQuery, number
from stan.monitor.guard import Guard
from stan.monitor.login.authentication import Authentication
from stan.monitor.login.viewer import everybody

FIELDS = sorted(
    {"channel", "cursor", "sequence", "up_to", "keep", "to", "time", "text", "uid", "group", "client", "subscription"}
    | {"max_msgs", "max_bytes", "max_age", "max_subs", "max_inactivity", "reset", "name"}
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.text(st.characters()),
    st.sampled_from(["orders", "1", "first", "new", "time", "sequence", "\ud800", "%ff", "9" * 20, "٣"]),
    st.lists(st.integers(), max_size=2),
)


@settings(max_examples=200)
@given(st.sampled_from(sorted(ACTIONS)), st.dictionaries(st.sampled_from(FIELDS), VALUES))
@example("move", {"channel": "a", "cursor": "1", "to": "time", "time": (1 << 63) - 1})
@example("delete_channel", {"channel": "a", "uid": 1 << 32})
@example("create_channel", {"channel": "\ud800"})
def test_fields_of_a_change_become_a_request_or_are_refused(name, fields):
    try:
        request = ACTIONS[name].request(fields)
    except BadQuestionError as error:
        json.dumps(str(error)).encode()
    else:
        assert type(request).FromString(request.SerializeToString()) == request


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(["search", "sort", "offset", "limit"]), st.text(st.characters(), max_size=30)))
def test_parameters_of_a_table_are_bounded_or_refused(query):
    try:
        wanted = TableQuery.of(query, {"name": None, "lag": None}, "name")
    except BadQuestionError:
        return
    assert 0 <= wanted.limit <= 500
    assert wanted.offset >= 0
    assert wanted.order in {"name", "lag"}


@given(st.text(st.characters()))
def test_number_is_one_or_refused(text):
    try:
        assert number({"n": text}, "n", 7, 100) <= 100
    except BadQuestionError:
        assert text


@given(st.text(st.characters()), st.binary())
def test_any_text_is_a_key_and_any_name_has_one(text, name):
    name_of_key(text)
    assert name_of_key(key_of(name.decode("utf-8", "surrogateescape"))) == name


@settings(max_examples=150)
@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
@example("[", "http://[")
@example("127.0.0.1", "http://[")
@example("localhost:99999999", "null")
def test_headers_of_any_form_are_judged(host, origin):
    config = MonitorConfig(dashboard_actions=True)
    guard = Guard(config, Authentication(Config(monitor=config)))
    guard.refuses({"Host": host})
    assert guard.refuses_change({"Host": host, "Origin": origin}, everybody(acts=True))  # there is no token
