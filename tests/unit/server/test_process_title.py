"""Secrets of the command line are overwritten where the list of processes shows them."""

import subprocess
import sys

import pytest

from stan.server.process_title import secret_spans


@pytest.mark.parametrize(
    ("arguments", "hidden"),
    [
        (["stan-server", "-encryption_key", "abc"], ["abc"]),
        (["stan-server", "--encryption_key=abc", "-auth", "t", "-st", "FILE"], ["abc", "t"]),
        (["stan-server", "-pass=x=y"], ["x=y"]),
        (["stan-server", "-pass", "-auth"], ["-auth"]),
        (["stan-server", "-user", "pass", "x", "-auth="], []),
        (["stan-server", "-auth"], []),
        (["x", "-ns", "nats://u:pw@h:1,nats://tok@i:2", "-routes=nats://a:b@c:3"], ["pw", "tok", "b"]),
        (["x", "-ns", "nats://h:1", "-dir", "a@b"], []),
    ],
)
def test_values_of_secret_flags_are_found(arguments, hidden):
    shown = b"".join(word.encode() + b"\0" for word in arguments)
    spans = secret_spans(shown, ("encryption_key", "pass", "auth"))
    assert [shown[at : at + length].decode() for at, length in spans] == hidden


@pytest.mark.skipif(sys.platform != "linux", reason="only there arguments can be overwritten")
def test_value_is_overwritten_in_the_process_list():
    code = (
        "from pathlib import Path; from stan.server.process_title import hide_arguments; hide_arguments();"
        "print(Path('/proc/self/cmdline').read_bytes().split(b'\\0')[3:])"
    )
    words = [sys.executable, "-c", code, "-encryption_key", "hidden", "-dir", "shown"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert told == "[b'-encryption_key', b'xxxxxx', b'-dir', b'shown', b'']\n"
