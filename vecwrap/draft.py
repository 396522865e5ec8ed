"""A pipeline under construction: a file, the files it extends, and the settings that override them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vecwrap.keys import KEYS, refuse_unknown
from vecwrap.source import Place, Source, Steps, fail
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
        """Apply the contents of a file over the settings so far.

        Mappings are merged key by key; a list replaces the previous one. Layers given as a mapping change the existing
        ones; a backend given as a mapping without a name changes the options of the existing one.

        Raises:
            SpecError: an unknown key, or a value of the wrong kind.
        """
        for key, value in data.items():
            refuse_unknown(key, list(KEYS), source)
            self._take(key, value, source.at(key))
        if () in source.places:
            self.places[()] = source.places[()]

    def set(self, key: str, value: Any, place: Place | None = None) -> None:
        """Replace the value of a key; one with dots (``wrappers.framestack.k``) reaches inside.

        Args:
            key: a pipeline's key.
            value: its new value.
            place: where it was written.

        Raises:
            SpecError: an unknown key, a layer that does not exist, or a value of the wrong kind.
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
        """Split a key at its dots, except those in a layer's import path."""
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
        if change is not None and "name" not in written:  # the value itself is still where it was
            below.pop(source.steps, None)
        self.places.update({(key, *steps[length:]): place for steps, place in below.items()})
