"""The sources of one place: of this process, of a thread, of a worker.

Here is the only loop that steps them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, repeat, takewhile
from typing import Any, TypeVar

from vecwrap.rows.step_result import Autoreset, Frames
from vecwrap.rows.table import Slots
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.failure import Failure, MakeError, make_failure
from vecwrap.sources.make_source import make_source, refuse_one_for_several
from vecwrap.sources.source import RestartState, Source
from vecwrap.sources.source_factories import Factory, num_rows_of

_T = TypeVar("_T")


class SourceGroup:
    """The sources of consecutive rows, each made by its factory.

    An exception takes the rows of its source out and leaves the others alone. ``step``, ``reset``
    and ``call`` leave off where the program was interrupted: then they return fewer rows than were
    requested, and the rest is for another call. Rows are numbered as in the slots, failures and
    descriptions as the sub-environments of the backend.
    """

    def __init__(
        self,
        first_index: int,
        factories: Sequence[Factory],
        *,
        is_own: Callable[[BaseException], bool],
        check_interrupt: Callable[[], bool] | None = None,
    ) -> None:
        """Take factories; nothing is made yet.

        Args:
            first_index: the number of the first row among all sub-environments.
            factories: one for each source.
            is_own: whether an exception that came out of a source is the program's own, as an
                interrupt is in this process; otherwise it is a failure of the source, whatever its
                type.
            check_interrupt: whether an interrupt that was held back has come; looked at between two
                sources.
        """
        self._factories = factories
        self._first_index = first_index
        self._is_own = is_own
        self._check_interrupt = check_interrupt
        self.of_several = num_rows_of(factories) > 1  # whether a source has several rows
        # Whether the sources get the actions of their rows, and do not read the slots.
        self.take_actions = False
        self._slots: Slots
        self._first_row = 0
        self.rows = range(0)  # in the slots
        self.all_rows: list[int] = []  # the same
        self._source_of: list[Source] = []  # by row, counted from the first
        self.sources: list[Source] = []

    def make(
        self, mode: Autoreset, *, debug: bool, recreate_every: int | None = None
    ) -> list[tuple[int, EnvDescription]]:
        """Make them all; return the description of each, and the number of its first row.

        Raises:
            CouldNotMake: one of them raised; those that were made stay open.
        """
        descriptions: list[tuple[int, EnvDescription]] = []
        index = self._first_index
        for factory in self._factories:
            try:
                source = make_source(
                    index, factory, mode, debug=debug, recreate_every=recreate_every
                )
                self.sources.append(source)
                self._source_of += [source] * source.num_rows
                descriptions.append((index, source.describe()))
            except BaseException as error:
                if self._is_own(error):
                    raise
                raise MakeError(make_failure(index, error), factory) from error
            index += source.num_rows
        self.take_actions = self.sources[0].takes_action
        refuse_one_for_several(self.sources)
        return descriptions

    def envs(self) -> list[Any] | None:
        """Return the wrapped environment, or the game, of each row.

        Return None if an engine has no environments in this process.
        """
        found: list[Any] = []
        for source in self.sources:
            envs = source.envs()
            if envs is None:
                return None
            found += envs
        return found

    def attach(self, slots: Slots, first_row: int) -> None:
        """Set where the results go: into these slots, from this row on."""
        self._slots = slots
        self._first_row = first_row
        self.rows = range(first_row, first_row + len(self._source_of))
        self.all_rows = list(self.rows)
        for source in self.sources:
            source.attach(slots, first_row + source.index - self._first_index)

    # -- rows --------------------------------------------------------------------------------------

    def step(
        self, rows: Sequence[int], actions: Sequence[Any] | None = None
    ) -> tuple[Sequence[int], list[Failure]]:
        """Step these rows, all of each source, with the actions in the slots.

        Args:
            rows: of the slots.
            actions: one for each source, if somebody has them at hand: that of its row, or the
                batch of an engine's rows.

        Returns:
            The rows that are done, ``rows`` of this group if it is all of them, and the failures
            of the others.
        """
        whole = rows == self.rows or rows == self.all_rows  # one of these is what most steps bring
        sources = self.sources
        if not whole:
            sources = [self._source_of[row - self._first_row] for row in rows]
            if self.of_several:
                sources = list(dict.fromkeys(sources))
        each: Iterable[Any] = repeat(None)
        if actions is not None:
            each = actions
        elif self.take_actions:
            each = self._slots.actions.get_all(rows)
        came = self._check_interrupt
        failures: list[Failure] = []
        failed: set[Source] = set()
        begun = 0
        for source, action in zip(sources, each, strict=False):
            if came is not None and begun and came():
                break
            begun += 1
            try:
                source.step(action)
            except BaseException as error:
                own = self._is_own(error)
                if not source.takes_action:
                    action = None
                failures += source.failures(range(source.num_rows), error, "step", action)
                failed.add(source)
                if own:  # how far it got is unknown
                    break
        else:
            if not failed:
                if whole:
                    return self.rows, failures
                return list(rows), failures
        done = [source for source in sources[:begun] if source not in failed]
        return [row for source in done for row in source.rows], failures

    def reset(
        self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> tuple[list[int], list[Failure]]:
        """Reset rows with a seed each; return the finished rows and the others' failures."""
        done: list[int] = []
        failures: list[Failure] = []
        for source, own_rows, own_seeds in self._by_source(rows, seeds):
            if self._check_interrupt is not None and (done or failures) and self._check_interrupt():
                break
            try:
                source.reset(own_rows, own_seeds, options)
                done += [source.rows[row] for row in own_rows]
            except BaseException as error:
                own = self._is_own(error)
                failures += source.failures(own_rows, error, "reset")
                if own:
                    break
        return done, failures

    def first_of(self, rows: Sequence[int]) -> int:
        """Return how many of these rows, from the first on, are of the same source."""
        first = self._first_row
        source = self._source_of[rows[0] - first]
        return sum(1 for _ in takewhile(lambda row: self._source_of[row - first] is source, rows))

    def in_groups(self, rows: Sequence[int]) -> list[list[int]]:
        """Return these rows source by source."""
        first = self._first_row
        return [
            list(group) for _, group in groupby(rows, key=lambda row: self._source_of[row - first])
        ]

    def want_frames(self, frames: Sequence[Frames]) -> None:
        """Set which frames of each row are wanted."""
        for source in self.sources:
            begin = source.index - self._first_index
            source.want_frames(frames[begin : begin + source.num_rows])

    def failures(self, row: int, error: BaseException, during: str) -> list[Failure]:
        """Report that what was requested of a row has failed."""
        source = self._source_of[row - self._first_row]
        return source.failures([row - source.rows.start], error, during)

    def refused(self, row: int, error: Exception, during: str, *, of_the_end: bool) -> Failure:
        """Report that the result of a row cannot be passed on, as of ``SourceRef``."""
        source = self._source_of[row - self._first_row]
        return source.refused(row - source.rows.start, error, during, of_the_end=of_the_end)

    # -- calls, restarts, the end ------------------------------------------------------------------

    def call(
        self, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> tuple[dict[int, Any], list[Failure]]:
        """Call a method for rows; return values by sub-environment, and failures."""
        values: dict[int, Any] = {}
        failures: list[Failure] = []
        for source, own_rows, own_arguments in self._by_source(rows, arguments):
            try:
                answers, failed = source.call(method, own_rows, own_arguments)
                failures += failed
                values.update({source.index + row: value for row, value in answers.items()})
            except BaseException as error:
                own = self._is_own(error)
                failures += source.failures(own_rows, error, method)
                if own:
                    break
        return values, failures

    def restore(
        self, rows: Sequence[int], restart_states: Sequence[RestartState], *, made: bool = False
    ) -> list[Failure]:
        """Restore lost sources with their state; return the failures.

        The sources are recreated first, unless they have just been ``made``.
        """
        failures: list[Failure] = []
        groups = []
        if self.sources:
            groups = self._by_source(rows, restart_states)
        for source, own_rows, own_takeovers in groups:
            if not self.sources:  # closed meanwhile, by another thread
                break
            try:
                if not made:
                    self._close_lost(source)
                    source.recreate()
                self._restore(source, own_takeovers)
            except BaseException as error:
                if self._is_own(error):
                    raise
                failures += [make_failure(source.index + row, error) for row in own_rows]
            if source not in self.sources:
                self._close_lost(source)
        return failures

    def _restore(self, source: Source, restart_states: Sequence[RestartState]) -> None:
        try:
            source.restore(restart_states)
        except BaseException:
            # Raise the reason, not an error of closing.
            with contextlib.suppress(Exception, SystemExit):
                source.close()
            raise

    def _close_lost(self, source: Source) -> None:
        try:
            source.close()
        except BaseException as error:
            if self._is_own(error):
                raise

    def close(self, timeout: float = 5.0, terminate: bool = False) -> list[BaseException]:
        """Close them all, despite errors and interrupts; return these."""
        errors: list[BaseException] = []
        while self.sources:
            source = self.sources.pop(0)
            try:
                source.close(timeout, terminate)
            except BaseException as error:
                errors.append(error)
        self._source_of = []
        return errors

    # -- parts -------------------------------------------------------------------------------------

    def _by_source(
        self, rows: Sequence[int], values: Sequence[_T]
    ) -> list[tuple[Source, list[int], list[_T]]]:
        """Group rows and values by source.

        Rows are counted from the first row of their source.
        """
        groups: dict[Source, tuple[list[int], list[_T]]] = {}
        for row, value in zip(rows, values, strict=True):
            source = self._source_of[row - self._first_row]
            own_rows, own_values = groups.setdefault(source, ([], []))
            own_rows.append(row - source.rows.start)
            own_values.append(value)
        return [(source, *both) for source, both in groups.items()]
