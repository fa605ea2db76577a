"""`--signal`: which process is meant, which signal is sent, and the texts when that is not clear."""

import os
import signal
import sys

import pytest

from stan.errors import StartError
from stan.server import signals


@pytest.fixture
def sent(monkeypatch):
    calls = []
    monkeypatch.setattr(os, "kill", lambda pid, number: calls.append((pid, number)))
    return calls


def running(monkeypatch, *processes):
    monkeypatch.setattr(signals, "_processes", lambda: iter(processes))


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("stop", signal.SIGKILL),
        ("quit", signal.SIGINT),
        ("term", signal.SIGTERM),
        ("reopen", signal.SIGUSR1),
        ("reload", signal.SIGHUP),
        ("ldm", signal.SIGUSR2),
    ],
)
def test_word_with_pid_sends_its_signal(sent, word, number):
    signals.send(f"{word}=77")
    assert sent == [(77, number)]


def test_pid_file_names_the_process(sent, tmp_path):
    file = tmp_path / "pid"
    file.write_text("78\n")
    signals.send(f"quit={file}")
    assert sent == [(78, signal.SIGINT)]


@pytest.mark.parametrize("target", ["x", "-5", "0", "/no/such/file"])
def test_bad_pid_is_refused(sent, target):
    with pytest.raises(StartError, match=f"^invalid pid: {target}$"):
        signals.send(f"quit={target}")
    assert sent == []


def test_unknown_word_is_refused(sent):
    with pytest.raises(StartError, match=r'^unknown signal "halt"$'):
        signals.send("halt=77")


def test_process_that_is_gone_is_refused(monkeypatch):
    def gone(_pid, _number):
        raise ProcessLookupError(3, "No such process")

    monkeypatch.setattr(os, "kill", gone)
    with pytest.raises(StartError, match=r"^unable to signal process 77: No such process$"):
        signals.send("quit=77")


def test_only_server_is_found_by_itself(sent, monkeypatch):
    running(monkeypatch, (1, ["bash"]), (2, ["/usr/bin/python3.11", "/opt/bin/stan-server", "-p", "1"]), (3, []))
    signals.send("reload")
    assert sent == [(2, signal.SIGHUP)]


def test_no_server_and_many_servers_are_refused(sent, monkeypatch):
    running(monkeypatch, (1, ["vim", "stan-server"]))
    with pytest.raises(StartError, match=r"^no nats-streaming-server processes running$"):
        signals.send("quit")
    running(monkeypatch, (5, ["nats-streaming-server"]), (6, ["python", "/x/nats-streaming-server"]))
    with pytest.raises(StartError) as caught:
        signals.send("quit")
    assert str(caught.value) == "multiple nats-streaming-server processes running:\n5\n6"
    assert sent == []


def test_own_process_is_never_found(sent, monkeypatch):
    running(monkeypatch, (os.getpid(), ["stan-server", "-sl", "quit"]))
    with pytest.raises(StartError, match=r"^no nats-streaming-server"):
        signals.send("quit")


def test_listing_of_processes_holds_this_one():
    found = dict(signals._processes())
    assert " ".join(found[os.getpid()]).split() == " ".join(sys.orig_argv).split()
