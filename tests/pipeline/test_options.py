"""The options of backends: one object for each kind of runner, which everything else reads."""

import inspect
from dataclasses import fields
from typing import Literal, get_type_hints

import pytest

import vecwrap
from vecwrap.backends.workers.options import START_METHODS, ProcessOptions
from vecwrap.cli.names import argument_help
from vecwrap.env.options import RestartOptions, option_names
from vecwrap.pipeline import registry
from vecwrap.pipeline.fields import KEYS

KINDS = [ProcessOptions, RestartOptions]


@pytest.mark.parametrize("kind", KINDS)
def test_build_shows_the_options_with_their_types_defaults_and_help(kind):
    """A signature that editors and type checkers read cannot be derived."""
    shown, types, said = (
        inspect.signature(vecwrap.build).parameters,
        get_type_hints(kind),
        argument_help(vecwrap.build),
    )
    for field in fields(kind):
        assert shown[field.name].default == field.default
        shown_type = get_type_hints(vecwrap.build)[field.name]
        if field.name == "start_method":  # whose names the options check themselves
            assert shown_type == Literal[START_METHODS] | None
        else:
            assert shown_type == types[field.name]
        assert said[field.name] == argument_help(kind, "Attributes")[field.name]


def test_build_shows_no_other_options():
    shown = inspect.signature(vecwrap.build).parameters.keys() - {"unknown"}
    keys = {*KEYS, *option_names(ProcessOptions), *option_names(RestartOptions)} - {
        "eval",
        "training",
    }
    assert shown == keys | {"out", "config"}  # which are not the pipeline's


@pytest.mark.parametrize("name", registry.backends.names())
def test_every_option_has_help_and_none_is_a_key_of_the_pipeline(name):
    kind = registry.backends.load(name).Options
    assert option_names(kind) == tuple(
        name for name in option_names(kind) if name in argument_help(kind, "Attributes")
    )
    assert not {*option_names(kind)} & {*KEYS, *option_names(RestartOptions)}
