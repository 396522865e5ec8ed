"""A pipeline that is being put together, from a file and those it extends, and from what is set over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vecwrap.document import Steps
from vecwrap.keys import KEYS, refuse_unknown
from vecwrap.source import Place, Source, fail
from vecwrap.values import Whole

__all__ = ["Draft"]


class Draft:
    """The settings of a pipeline so far, and where each was written.

    Args:
        settings: what has been read.
        places: where it was written.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, places: Mapping[Steps, Place] | None = None) -> None:
        self.settings = dict(settings or {})
        self.places = dict(places or {})

    def write_over(self, data: Mapping[Any, Any], source: Source) -> None:
        """Take in what a file says over what was said before.

        Mappings join, key by key; a list replaces the one before it. Where layers are a mapping, they change those
        there are; where a backend is a mapping without a name, it changes the options of the one there is.

        Raises:
            SpecError: an unknown key, or a value of the wrong kind.
        """
        for key, value in data.items():
            refuse_unknown(key, list(KEYS), source)
            self._take(key, value, source.at(key))
        if () in source.places:
            self.places[()] = source.places[()]

    def set(self, key: str, value: Any, place: Place | None = None) -> None:
        """Replace what stands at a key; one with dots (``wrappers.framestack.k``) reaches inside.

        Args:
            key: a pipeline's key.
            value: what shall stand there.
            place: where that was written.

        Raises:
            SpecError: an unknown key, a layer that is not there, or a value of the wrong kind.
        """
        first, *steps = self._steps_of(key)
        place = place or Place()
        source = Source({(first, *steps): place}, (), place)
        refuse_unknown(first, list(KEYS), source)
        if steps and KEYS[first].change is None:
            inside = ", ".join(name for name, known in KEYS.items() if known.change is not None)
            fail(source.at(first, *steps), f"{first} has no settings of its own; {inside} have")
        written: Any = Whole(value)
        for step in reversed(steps):
            written = {step: written}
        self._take(first, written, source.at(first))

    def _steps_of(self, key: str) -> list[str]:
        """Split a key at its dots, but for those of a layer's import path."""
        first, _, rest = key.partition(".")
        paths = [layer.name for layer in self.settings.get("wrappers") or () if ":" in layer.name]
        for path in sorted(paths, key=len, reverse=True):
            if first == "wrappers" and f"{rest}.".startswith(f"{path}."):
                return [first, path, *filter(None, rest[len(path) + 1 :].split("."))]
        return key.split(".")

    def _take(self, key: str, written: Any, source: Source) -> None:
        known = KEYS[key]
        change = known.change if isinstance(written, Mapping) and key in self.settings else None
        if change is not None:
            self.settings[key] = change(self.settings[key], written, source)
        else:
            self.settings[key] = known.read(written.value if isinstance(written, Whole) else written, source)
            self.places = {steps: place for steps, place in self.places.items() if steps[:1] != (key,)}
            self.places[(key,)] = source.place
        length = len(source.steps)
        below = {steps: place for steps, place in source.places.items() if steps[:length] == source.steps}
        if change is not None and "name" not in written:  # what it is stands where it stood
            below.pop(source.steps, None)
        self.places.update({(key, *steps[length:]): place for steps, place in below.items()})
