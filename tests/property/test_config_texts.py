"""Any text as a configuration file, and any words as a command line: understood or complained about, never a crash."""

from hypothesis import given
from hypothesis import strategies as st

from stan.config import Config
from stan.server.reload import plan
from stan.settings.file_schema import FILE_ONLY, SECTIONS, TOP
from stan.settings.flags import TABLE
from stan.settings.nats_conf import ConfError
from stan.settings.nats_conf import parse as parse_conf
from stan.settings.settings import Parsed, parse

KEYS = sorted(
    {*TOP, *SECTIONS, *(key for _, keys in SECTIONS.values() for key in keys), *FILE_ONLY, "channels", "streaming"}
)
NATS = [
    "port",
    "http",
    "authorization",
    "users",
    "user",
    "password",
    "token",
    "cluster",
    "listen",
    "routes",
    "verify",
    "cert_file",
]
WORDS = [
    "1",
    "-1",
    "0",
    '"2s"',
    "true",
    "x",
    "$HOME",
    "$y",
    "1GB",
    "{}",
    "[]",
    "nats://a:b@c:1",
    "'FILE'",
    "2.5",
    "include f",
]
PIECES = [" ", "\n", "{", "}", "[", "]", ":", "=", ",", ";", "#", '"', "'", "(", ")", "\\", "//"]

pieces = st.lists(st.sampled_from(KEYS + NATS + WORDS + PIECES) | st.text(max_size=3), max_size=60).map(" ".join)
entry = st.tuples(st.sampled_from(KEYS + NATS), st.sampled_from(WORDS)).map(lambda pair: f"{pair[0]}: {pair[1]}\n")
blocks = st.recursive(
    st.lists(entry, max_size=6).map("".join),
    lambda inner: st.tuples(st.sampled_from(KEYS + NATS), inner, st.lists(entry, max_size=3).map("".join)).map(
        lambda parts: f"{parts[0]} {{\n{parts[1]}}}\n{parts[2]}"
    ),
    max_leaves=6,
)
texts = pieces | blocks | st.binary(max_size=200).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
flags = st.lists(
    st.sampled_from(TABLE).flatmap(lambda flag: st.sampled_from(WORDS).map(lambda word: f"-{flag.key}={word}")),
    max_size=3,
)


def understood(text: str, argv: list[str]) -> Parsed:
    raw = text.encode("utf-8", "surrogateescape")
    return parse(
        ["-c", "f", *argv], lambda file: parse_conf(raw, str(file), {"HOME": "7"}), {"STAN_ENCRYPTION_KEY": "k"}, "own"
    )


@given(texts, flags)
def test_any_configuration_is_understood_or_complained_about(text, argv):
    parsed = understood(text, argv)
    assert all(isinstance(complaint, str) for complaint in [*parsed.complaints, *parsed.config.validate()])
    assert "own" not in repr(parsed.config.shown())


@given(texts, texts)
def test_any_two_configurations_can_follow_each_other(before, after):
    running, wanted = understood(before, []).config, understood(after, []).config
    found = plan(running, wanted)
    assert isinstance(found.config, Config)
    assert not plan(wanted, wanted).changed


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused_with_all_that_is_wrong(raw):
    errors = []
    try:
        parse_conf(raw, "f")
    except ConfError as error:
        errors = [error, *error.others]
    assert all(str(error).startswith("f:") for error in errors)
