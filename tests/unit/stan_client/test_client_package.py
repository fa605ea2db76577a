"""The package stan_client itself: its names come from its modules, and only when they are asked for."""

import subprocess
import sys

import pytest
import stan_client

from tests.kit.server import ROOT


def said(code: str) -> str:
    """What *code* prints in a Python of its own."""
    command = [sys.executable, "-c", f"import sys\nimport stan_client\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()


@pytest.mark.parametrize("name", stan_client.__all__)
def test_each_name_is_what_its_module_has(name):
    found = getattr(stan_client, name)

    module = getattr(found, "__module__", "stan_client.messages.middleware")  # a context variable has none

    assert module.startswith("stan_client.")
    assert vars(sys.modules[module])[name] is found
    assert name in dir(stan_client)


def test_import_of_the_package_loads_none_of_its_modules():
    assert said("print([name for name in sys.modules if name.startswith('stan_client.')])") == "[]"


def test_a_module_of_the_package_is_loaded_when_it_is_asked_for():
    assert said("print(stan_client.errors.ServerError is stan_client.ServerError)") == "True"


def test_a_name_that_the_package_does_not_have_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'stan_client' has no attribute 'Nothing'"):
        _ = stan_client.Nothing
    assert not hasattr(stan_client, "_nothing")


def test_reading_loads_neither_publishing_nor_administration():
    unused = (
        *("client", "publishing", "subscribing.subscription", "requests.admin", "messages.middleware"),
        *("reading.table", "reading.consumer", "reading.group_consumer"),
    )
    code = f"stan_client.Direct, stan_client.blocking\nprint([name for name in {unused} if 'stan_client.' + name in sys.modules])"

    assert said(code) == "[]"
