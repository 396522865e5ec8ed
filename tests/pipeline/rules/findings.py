"""What tests of rules ask."""

import vecwrap


def ids(line, *wrappers, **settings):
    """The ids of what is found in a pipeline of two sub-environments, with these wrappers where
    some are given.
    """
    settings = {
        "n": 2,
        "backend": "dummy",
        **settings,
        **({"wrappers": wrappers} if wrappers else {}),
    }
    return [finding.id for finding in vecwrap.check(line, **settings)]
