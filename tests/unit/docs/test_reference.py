"""The generated pages of the documentation's site: everything that the program has is on them, and links lead where they did."""

import ast
import inspect
import re
from pathlib import Path

import pyspark_stan
import pytest
import stan_client
import stan_client.errors
import stan_lake
from stan_protocol import refusals
from stan_protocol.proto import admin_pb2, extension_pb2

from docs.generator import admin_types, metrics, requests
from docs.generator.commands import CONNECTION, commands, is_argument, name
from docs.generator.hooks import DOCS, OUTSIDE, ROOT, linked, outside_files, site_name, with_links_of_the_site
from docs.generator.markdown import code, shown
from docs.generator.reference import EXAMPLES, pages, public_names
from stan.cli.main import ENTRIES
from stan.core.requests.table import REQUESTS
from stan.errors import StanError
from stan.monitor import metrics as monitor
from stan.policies import POLICY_OPTIONS
from stan.settings.file_schema import ENVIRONMENT, FILE_ONLY, SECTIONS, TOP
from stan.settings.flags import TABLE

PAGES = pages()
OPTIONS, POLICIES, COMMANDS = (PAGES[f"reference/{page}.md"] for page in ("options", "policies", "commands"))
METRICS, ERRORS, REQUESTS_PAGE = (PAGES[f"reference/{page}.md"] for page in ("metrics", "errors", "requests"))


def missing(words, page):
    return [word for word in words if word not in page]


def test_the_dataclasses_of_answers_are_those_that_the_generator_makes():
    assert admin_types.PATH.read_text(encoding="utf-8") == admin_types.admin_types(), (
        "python -m docs.generator.admin_types"
    )


# --- nothing is missing ----------------------------------------------------------------------------------------------------


def test_every_flag_is_there():
    assert not missing([code(f"-{each}") for flag in TABLE for each in flag.names], OPTIONS)
    assert not missing([shown(flag.help) for flag in TABLE], OPTIONS)


def test_every_key_of_the_configuration_file_is_there():
    keys = {*TOP, *FILE_ONLY.keys() & TOP.keys(), *SECTIONS, *(key for _, keys in SECTIONS.values() for key in keys)}
    assert not missing([code(key) for key in sorted(keys)], OPTIONS)
    assert not missing([code(each) for _, names in ENVIRONMENT.values() for each in names], OPTIONS)


def test_every_option_of_policies_is_there():
    assert not missing([f"| {code(option.key)} |" for option in POLICY_OPTIONS], POLICIES)
    assert not missing([code(word) for option in POLICY_OPTIONS for word in option.words if word], POLICIES)


def test_every_command_with_its_options_is_there():
    listed = list(commands())
    assert {entry.name for entry in ENTRIES} == {
        entry.name for entry in ENTRIES for one in listed if f"{one.words} ".startswith(f"{entry.name} ")
    }
    for words, command in listed:
        section = re.search(rf"^### stan {re.escape(words)}\n(.*?)(?=^##|\Z)", COMMANDS, re.MULTILINE | re.DOTALL)
        assert section, words
        for each in command.params:
            if is_argument(each):
                assert code(name(each)) in section[1]
            elif not each.hidden and each.rich_help_panel != CONNECTION:
                assert not missing(map(code, each.opts), section[1]), words
    assert code("--server") in COMMANDS


def test_every_metric_is_there():
    source = inspect.getsource(monitor)
    named = re.findall(r'\b(?:_gauge|_counter|_histogram)\(\s*"(\w+)"', source)
    named += [f"durable_{each}" for each in re.findall(r'\bof\("(\w+)"', source)]
    named += [each.removeprefix("stan_") for each in re.findall(r'MetricFamily\(\s*"(\w+)"', source)]
    assert len(named) > 50
    assert not [each for each in named if not re.search(rf"`stan_{each}(?:_total|_info)?`", METRICS)]
    assert len(named) == len(metrics.families()) == len({family.name for family in metrics.families()})


def test_a_metric_whose_name_is_not_in_the_source_is_told():
    call = ast.parse("_gauge(name, 'text')", mode="eval").body
    with pytest.raises(ValueError, match="line 1"):
        metrics._family(call, "_gauge", {})


def test_every_error_is_there():
    module = vars(inspect.getmodule(StanError))
    rows = [f"| {code(name)} | {code(text.replace('{0}', '{}'))} |" for name, text in refusals.TEXTS.items()]
    assert not missing(rows, re.sub("<…>", "{}", ERRORS))
    names = [each for package in (stan_client, stan_lake) for each in package.__all__ if each.endswith("Error")]
    names += [key for key, value in vars(stan_client.errors).items() if inspect.isclass(value) and "Error" in key]
    names += [key for key, value in module.items() if inspect.isclass(value) and issubclass(value, StanError)]
    assert len(names) > 70
    assert not missing([f"| {code(each)} |" for each in names], ERRORS)


def test_every_request_with_its_fields_is_there():
    assert not missing([f"\n### {kind}\n" for kind in REQUESTS], REQUESTS_PAGE)
    rights = {right.name.lower() for kind in REQUESTS.values() for right in kind.rights}
    assert not missing(map(code, sorted(rights)), REQUESTS_PAGE)
    fields = {
        field.name
        for kind in REQUESTS.values()
        for message in (kind.request, kind.response)
        for field in message.DESCRIPTOR.fields
    }
    assert not missing([f"| {code(field)} |" for field in sorted(fields)], REQUESTS_PAGE)


def test_the_words_of_each_field_are_read_from_the_source():
    messages = [
        message for module in (admin_pb2, extension_pb2) for message in module.DESCRIPTOR.message_types_by_name.values()
    ]
    assert len({message.name for message in messages}) == len(messages)
    known = requests.comments()
    assert not missing(
        [f"{message.name}.{field.name}" for message in messages for field in message.fields], known.fields
    )
    assert known.fields["ChannelsRequest.pattern"] == "`*` one token, `>` all that follow; empty: `>`"
    assert known.blocks["DeleteMessageRequest"].startswith("`.delete_message`: channel. Its sequence stays unused;")


@pytest.mark.parametrize("package", [stan_client, stan_lake, pyspark_stan], ids=lambda package: package.__name__)
def test_every_public_name_of_a_package_is_there(package):
    page = PAGES[f"reference/{package.__name__}.md"]
    assert not missing([f"\n::: {each}\n" for each in public_names(package)], f"{page}\n")
    assert {each.rpartition(".")[2] for each in public_names(package)} >= {
        each for each in package.__all__ if not each.endswith("Error")
    }


def test_every_example_is_there():
    programs = sorted(EXAMPLES.glob("*.py"))
    assert not missing([path.read_text(encoding="utf-8").rstrip() for path in programs], PAGES["examples.md"])


# --- words and links -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("a * b_c <d> [e]", r"a \* b\_c &lt;d&gt; \[e\]"),
        ("`*` and `a|b`", r"`*` and `a\|b`"),
        ("two  lines\n  one", "two lines one"),
        ("it`s", "its"),
    ],
)
def test_a_text_is_shown_as_it_is(text, markdown):
    assert shown(text) == markdown


def test_links_of_the_repository_lead_to_the_same_files_in_the_site():
    code_block = "```\n[f](../README.md)\n```"
    text = f"[a](raft.md#one) [b](../SECURITY.md) [c](../README.md#x) [d](https://example.org/a.md) [e](../no.md)\n{code_block}"
    assert with_links_of_the_site(DOCS / "spark.md", text) == (
        f"[a](raft.md#one) [b]({OUTSIDE}/SECURITY.md) [c]({OUTSIDE}/README.md#x) [d](https://example.org/a.md) "
        f"[e](../no.md)\n{code_block}"
    )
    assert with_links_of_the_site(ROOT / "deploy/README.md", "[a](../docs/raft.md)") == "[a](../../raft.md)"
    assert (
        with_links_of_the_site(DOCS / "decisions" / "README.md", "[a](../../LICENSE)") == f"[a](../{OUTSIDE}/LICENSE)"
    )


def test_what_pages_link_to_outside_of_the_pages_is_part_of_the_site():
    assert linked(DOCS / "spark.md", "[a](../LICENSE) [b](raft.md) [c](../../elsewhere)") == {ROOT / "LICENSE"}
    found = outside_files([DOCS / "README.md"])
    assert {ROOT / "README.md", ROOT / "deploy/README.md", ROOT / "tests/README.md"} <= set(found)
    assert not [path for path in found if path.is_relative_to(DOCS)]
    assert site_name(Path(ROOT / "tests/README.md")) == f"{OUTSIDE}/tests/README.md"
