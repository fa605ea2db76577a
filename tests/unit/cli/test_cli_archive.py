"""The files of a backup: what was written is read, damage is told by file and offset, and nothing half is taken for a backup."""

import json

import pytest
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.proto.extension_pb2 import FetchResponse, Run

from stan.cli.commands.archive import (
    ArchiveError,
    BackupIndex,
    SavedChannel,
    Writer,
    blocks,
    read_index,
    saved_messages,
    saved_positions,
    write_index,
)

CHANNEL = SavedChannel("foo", "000001", 1, 3, 7, 5, 1, {"max_msgs": 10})


@pytest.fixture
def saved(tmp_path):
    positions = Writer(tmp_path / "000001.positions")
    positions.write(pb.SubscriptionsResponse(cursors=[pb.CursorStatus(durable_name=b"d")]).SerializeToString())
    positions.close()
    messages = Writer(tmp_path / "000001.messages")
    for first, count in ((3, 2), (5, 3)):
        run = Run(first_sequence=first, count=count)
        messages.write(FetchResponse(runs=[run], records=b"x" * 40).SerializeToString())
    messages.close()
    write_index(tmp_path, BackupIndex("cluster", "name", "2026-01-01T00:00:00+00:00", "stan 0", [CHANNEL]))
    return tmp_path


def test_what_was_written_is_read(saved):
    index = read_index(saved)
    assert index.channels == [CHANNEL]
    assert [run.first_sequence for answer in saved_messages(saved, CHANNEL) for run in answer.runs] == [3, 5]
    assert [one.durable_name for one in saved_positions(saved, CHANNEL)] == ["d"]


def test_every_flipped_byte_and_every_cut_is_told_by_file_and_offset(saved):
    path = saved / "000001.messages"
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(ArchiveError, match=r"000001\.messages: offset \d+"):
            list(saved_messages(saved, CHANNEL))
        path.write_bytes(good[:at])
        with pytest.raises(ArchiveError, match=r"000001\.messages"):
            list(saved_messages(saved, CHANNEL))


def test_file_that_is_missing_is_named(saved):
    (saved / "000001.positions").unlink()
    with pytest.raises(ArchiveError, match=r"000001\.positions"):
        saved_positions(saved, CHANNEL)


def test_directory_without_an_index_is_no_backup(saved):
    (saved / "backup.json").unlink()
    with pytest.raises(ArchiveError, match="not finished"):
        read_index(saved)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"[]",
        b"4",
        b"null",
        json.dumps({"format": 2}).encode(),
        json.dumps({"format": 1, "channels": [{}]}).encode(),
        json.dumps({"format": 1, "channels": [], "policies": [], "schemas": [], "strange": 1}).encode(),
    ],
)
def test_index_that_makes_no_sense_is_refused(saved, said):
    (saved / "backup.json").write_bytes(said)
    with pytest.raises(ArchiveError, match=r"backup\.json"):
        read_index(saved)


def test_index_that_names_files_elsewhere_is_refused(saved):
    text = (saved / "backup.json").read_text().replace("000001", "../000001")
    (saved / "backup.json").write_text(text)
    with pytest.raises(ArchiveError, match="outside"):
        read_index(saved)


@pytest.mark.parametrize(("name", "value"), [("file", 2), ("messages", "000001"), ("group", None), ("limits", [])])
def test_index_with_a_field_of_another_type_is_refused(saved, name, value):
    said = json.loads((saved / "backup.json").read_text())
    said["channels"][0][name] = value
    (saved / "backup.json").write_text(json.dumps(said))
    with pytest.raises(ArchiveError, match=rf"backup\.json: {name} of a channel"):
        read_index(saved)


def test_empty_file_has_no_blocks(tmp_path):
    (tmp_path / "x").touch()
    assert list(blocks(tmp_path / "x")) == []
