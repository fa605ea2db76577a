"""Secrets in the title of a process, which everybody can read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stan.cli.title import hide, masked


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["stan-server", "-pass", "word", "-user", "u"], ["stan-server", "-pass", "****", "-user", "u"]),
        (["x", "--auth=token", "--encryption_key", "k"], ["x", "--auth=*****", "--encryption_key", "*"]),
        (["x", "-pass", "-pass", "y"], ["x", "-pass", "*****", "y"]),
        (["x", "-ns", "nats://u:pw@h:1,nats://tok@i:2"], ["x", "-ns", "nats://u:**@h:1,nats://***@i:2"]),
        (["x", "-dir", "/pass/auth", "-cid", "pass"], ["x", "-dir", "/pass/auth", "-cid", "pass"]),
    ],
)
def test_secrets_are_masked_and_nothing_else(argv, shown):
    assert masked(b"".join(word.encode() + b"\0" for word in argv)) == b"".join(word.encode() + b"\0" for word in shown)


@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"-pass", b"--auth=x", b"a://b:c@d"])))
def test_length_and_number_of_arguments_stay(argv):
    raw = b"".join(word + b"\0" for word in argv)
    assert len(masked(raw)) == len(raw)
    assert masked(raw).count(b"\0") == raw.count(b"\0")


def test_title_without_secrets_stays():
    hide()
