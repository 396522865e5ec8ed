"""What tests of rules ask."""

import vecwrap


def ids(line, *layers, **settings):
    """The ids of what is found in a pipeline of two sub-environments, with these layers where some are given."""
    settings = {"n": 2, "backend": "dummy", **settings, **({"wrappers": layers} if layers else {})}
    return [finding.id for finding in vecwrap.check(line, **settings)]
