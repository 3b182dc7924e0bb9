#!/usr/bin/env python3
"""Say whether JSON documents are of a type of `runstore_types` or `runstore_written_types`.

    python3 check.py TYPE FILE...   one line for each FILE that is not of TYPE; ends with 1 if there is one
    python3 check.py                reads lines [TYPE, DOCUMENT]; answers each with `ok`, or where and why not

TYPE is the name of a type (`InspectRun`) or of a schema (`status`); with `written:` before it one of what the library
writes (`written:status`). Needs Python 3.9, and nothing but its standard library. A type says less than its schema; of
what it does not say nothing is looked at here.
"""

import json
import sys
import typing

import runstore_types
import runstore_written_types

_HINTS = {}


def members_of(kind):
    """The members of a class and those that must be there."""
    if kind not in _HINTS:
        _HINTS[kind] = typing.get_type_hints(kind), kind.__required_keys__
    return _HINTS[kind]


def is_fixed(value, wanted):
    """Whether a value is the wanted one. Numbers are compared by value, and True is no number."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    return type(value) in (int, float, str) and value == wanted


def problem(hint, value, place="the document"):
    """Why a value is not what a hint says, or None."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is typing.Any:
        return None
    if hint is typing.NoReturn:
        return f"{place}: must be absent"
    if origin is typing.Union:
        told = [problem(one, value, place) for one in args]
        return None if None in told else "; or ".join(told)
    if origin is typing.Literal:
        fits = any(is_fixed(value, wanted) for wanted in args)
        return None if fits else f"{place}: must be one of {', '.join(map(repr, args))}"
    if origin is list:
        if not isinstance(value, list):
            return f"{place}: must be a list"
        items = (problem(args[0], item, f"{place}[{n}]") for n, item in enumerate(value))
        return next(filter(None, items), None)
    if origin is dict:
        if not isinstance(value, dict):
            return f"{place}: must be an object"
        keys = (problem(args[0], key, f"a name in {place}") for key in value)
        items = (problem(args[1], item, f"{place}.{key}") for key, item in value.items())
        return next(filter(None, keys), None) or next(filter(None, items), None)
    if hasattr(hint, "__required_keys__"):
        return object_problem(hint, value, place)
    return plain_problem(hint, value, place)


def object_problem(hint, value, place):
    """Why a value is no such object, or None. Members that are not listed may be there, unless the type is closed."""
    if not isinstance(value, dict):
        return f"{place}: must be an object"
    members, required = members_of(hint)
    for key in sorted(required):
        if key not in value:
            return f"{place}.{key}: missing"
    if hint in runstore_written_types.CLOSED:
        for key in value:
            if key not in members:
                return f"{place}.{key}: no member of {hint.__name__}"
    listed = (problem(members[key], item, f"{place}.{key}") for key, item in value.items() if key in members)
    return next(filter(None, listed), None)


def plain_problem(hint, value, place):
    """Why a value is not of a plain type, or None."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is float:
        fits = is_number
    elif hint is int:
        # A number without a fraction is whole, however it is spelled.
        fits = is_number and (isinstance(value, int) or value.is_integer())
    elif hint in (bool, str, type(None)):
        fits = type(value) is hint
    else:
        raise TypeError(f"{place}: a hint that is not understood: {hint!r}")
    return None if fits else f"{place}: must be {hint.__name__}"


def named(name):
    """The type of a name."""
    layer, _, last = name.rpartition(":")
    module = {"": runstore_types, "written": runstore_written_types}.get(layer)
    found = module and (module.BY_SCHEMA.get(last) or getattr(module, last, None))
    if found is None:
        sys.exit(f"check.py: no type is named {name!r}; see runstore_types.py and runstore_written_types.py")
    return found


def main(args):
    """Answers."""
    if not args:
        for line in sys.stdin:
            name, document = json.loads(line)
            print(problem(named(name), document) or "ok")
        return 0
    if len(args) < 2:
        sys.exit(__doc__)
    code = 0
    for path in args[1:]:
        with open(path, encoding="utf-8") as file:
            try:
                told = problem(named(args[0]), json.load(file))
            except ValueError as error:
                told = f"no JSON: {error}"
        if told:
            print(f"{path}: {told}")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
