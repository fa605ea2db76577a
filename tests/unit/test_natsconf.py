"""Finding settings of the streaming server in a configuration file of NATS."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stan.cli.natsconf import streaming_keys, top_level_keys


def keys(text):
    return list(top_level_keys(text))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("port: 4222", ["port"]),
        ("port = 4222; host 'x'", ["port", "host"]),
        ("port 4222\nhttp: 8222 # store: file\n// dir: x\n", ["port", "http"]),
        ("streaming { store: file }", ["streaming"]),
        ("streaming: {\n id: x\n}\nport: 1", ["streaming", "port"]),
        ("authorization {\n users = [ {user: a, password: b} ]\n}\ndebug: true", ["authorization", "debug"]),
        ('"store": "FILE"', ["store"]),
        ("name: 'a { b'\nid: x", ["name", "id"]),
        ('name: "a \\" { b"\nid: x', ["name", "id"]),
        ("url: nats://host:4222\nid: x", ["url", "id"]),
        ("a: {b: {c: 1}}\nd: 2", ["a", "d"]),
        ("text: (\n store: file }\n)\nid: x", ["text", "id"]),
        ("", []),
    ],
)
def test_top_level_keys_are_found(text, found):
    assert keys(text) == found


def test_keys_of_nats_are_no_streaming_keys():
    text = "port: 4222\ntls { cert_file: x }\ncluster { name: y }\njetstream { store_dir: z }\n"
    assert streaming_keys(text) == []


def test_streaming_keys_are_found_in_any_case_and_once():
    assert streaming_keys("port: 1\nSTORE: file\nStreaming {}\nSTORE: memory\nft_group: a") == [
        "STORE",
        "Streaming",
        "ft_group",
    ]


@given(st.text(alphabet="ab {}[]#\"'\n:=,;/()\\", max_size=60))
def test_any_text_is_read_to_its_end(text):
    assert all(isinstance(key, str) for key in top_level_keys(text))
