"""Calls that cannot be used: their errors in the words and the style of all others."""

import difflib
import re
import shlex
from typing import Any

import typer

from vecwrap.cli.help_pages import names_of
from vecwrap.pipeline.fields import other_name


def usage_text(error: Any) -> str:
    """Return where a call is wrong, what was expected, what was given, and what to do."""
    context = error.ctx
    parameter = getattr(error, "param", None)
    option = getattr(error, "option_name", "") or ""
    if type(error) is typer.BadParameter and parameter is not None:
        return f"{_name(parameter)}: {error.message}"
    if isinstance(error, typer.BadParameter):  # a parameter is missing
        return f"{_path(context)}: expected {names_of(parameter)}, got none. {_see(context)}"
    if hasattr(error, "possibilities"):
        return f"{_path(context)}: there is no option {option}.{_other_option(option, context)}"
    if option and "argument" in error.format_message():
        value = next(
            (each.metavar for each in context.command.params if option in each.opts), "a value"
        )
        return f"{option}: expected {value} after it, got nothing. {_see(context)}"
    message = error.format_message().rstrip(".")
    rest = re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", message)
    if rest is not None:
        return f"{_path(context)}: {_extra(rest[1], context)}"
    name = re.search(r"No such command '(.*?)'", message)
    if name is not None:
        return f"there is no command {name[1]}.{_other_command(name[1], context)}"
    return f"{_path(context)}: {message}. {_see(context)}"


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name)
    return str(max(parameter.opts, key=len))


def _path(context: Any) -> str:
    """The name of a command, without that of the program unless it is alone."""
    return str(context.command_path).removeprefix("vecwrap ")


def _see(context: Any) -> str:
    return f"See {context.command_path} --help."


def _other_option(option: str, context: Any) -> str:
    remedy = other_name(option.strip("-").replace("-", "_"))
    if remedy:
        return remedy
    known = [name for each in context.command.get_params(context) for name in each.opts]
    near = difflib.get_close_matches(option, known, n=1)
    if near:
        return f" Did you mean {near[0]}?"
    return f" {_see(context)}"


def _other_command(name: str, context: Any) -> str:
    near = difflib.get_close_matches(name, context.command.list_commands(context), n=1)
    if near:
        return f" Did you mean {near[0]}?"
    return f" {_see(context)}"


def _extra(rest: str, context: Any) -> str:
    if "pipeline" in context.params:
        line = shlex.quote(f"{context.params['pipeline']} {rest}")
        return (
            f"expected one PIPELINE, got more: {rest}. Quote the whole pipeline: "
            f"{context.command_path} {line}"
        )
    return f"expected no more arguments, got {rest}. {_see(context)}"
