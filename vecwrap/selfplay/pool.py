"""A pool of opponents: snapshots of the learner, which never change, and scripted players."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from gymnasium import spaces

from vecwrap.errors import ArgumentError, CheckpointError, PlanError, did_you_mean, text_of
from vecwrap.rows.step_result import FloatArray
from vecwrap.selfplay.arrays import own_arrays
from vecwrap.selfplay.policies import Make, Policies, Policy
from vecwrap.selfplay.pool_files import (
    Fact,
    PoolFolder,
    Shared,
    Snapshot,
    State,
    check_shared,
    refuse_description,
    restored,
    sort_key,
)
from vecwrap.selfplay.ratings import Ratings, bradley_terry
from vecwrap.selfplay.results import CURRENT, LEARNER, Results, WinRates, read_rows
from vecwrap.selfplay.sampling import Rule, pick, rule_of, shares
from vecwrap.selfplay.scripted import RANDOM


class OpponentPool:
    """A folder of opponents for self-play: snapshots of a learner, and scripted players.

    A snapshot never changes: ``add`` copies its arrays at once, they are written under a name that
    is never used again, and a digest is checked whenever they are loaded. Files hold arrays and
    facts, and nothing in them is unpickled; ``make`` makes a policy from the arrays. A pool without
    a folder has scripted members alone.

    Members are scripted ones (``random``, or the import path of a policy), then snapshots from the
    oldest to the newest, ``000001``, ``000002`` and so on. With ``keep``, members are the newest
    ``keep`` snapshots, and scripted ones, which never leave. As many again stay on disk for games
    that are running against them and for saved states that know them; older ones are deleted.

    Several processes can add to one folder and read it. What others have added is seen after
    ``refresh``, which ``add`` calls too, so a run draws the same opponents again as long as it is
    alone.

    If the folder is removed, policies that were loaded go on playing, and results are kept in
    memory; what needs the folder raises a CheckpointError. A snapshot that another process has
    deleted meanwhile is not drawn.

    Args:
        dir: the folder; created by the first ``add``. None for scripted members alone.
        make: ``make(arrays)`` returns a policy; an import path, or a function, which other
            processes find if it can be imported. The folder remembers it.
        scripted: members from the start: ``"random"`` and import paths of policies.
        keep: the largest number of snapshots among the members; the folder remembers it. None means
            all.
        decay: what each game of the learner leaves of the weight of earlier ones in ``win_rate``,
            above 0 and at most 1.
        imports: whether import paths may be imported; if not, they are refused.

    Attributes:
        current: the learner's own policy, an opponent under the name ``"current"``; None if there
            is none. It may change within a game, and games against it are not rated. A training
            sets it.
        records: whether games are recorded in a folder although there is no ``current``; a training
            without one sets it to True.
        results: the games that this pool has recorded.

    Raises:
        SpecError: invalid import paths, or some that ``imports`` refuses.
        ArgumentError: ``dir`` is of another type.
        PlanError: other arguments out of range.
        CheckpointError: a folder whose files are not those of a pool.

    >>> import tempfile
    >>> def make(arrays):  # a policy that always plays the same move
    ...     return lambda observations: np.full(len(observations), arrays["move"])
    >>> pool = OpponentPool(tempfile.mkdtemp(), make=make, scripted=["random"])
    >>> weights = {"move": np.array(2)}
    >>> pool.add(weights)
    '000001'
    >>> weights["move"][...] = 0  # training goes on
    >>> pool.policy("000001")(np.zeros((3, 4)))
    array([2, 2, 2])
    >>> pool.draw(np.random.default_rng(1), "latest"), pool.members
    ('000001', ('random', '000001'))
    """

    def __init__(
        self,
        dir: str | os.PathLike[str] | None,
        make: str | Make | None = None,
        *,
        scripted: Sequence[str] = (),
        keep: int | None = None,
        decay: float = 0.99,
        imports: bool = True,
    ) -> None:
        if dir is not None and not isinstance(dir, (str, os.PathLike)):
            raise ArgumentError(
                "pool: dir: expected a folder, or None for scripted members alone, got "
                f"{type(dir).__name__}; for a list of them write OpponentPool(None, scripted=[...])"
            )
        self.dir: Path | None = None
        self._where = "pool"
        self._folder = None
        if dir is not None:
            self.dir = Path(dir)
            self._where = os.fspath(dir)
            self._folder = PoolFolder(self.dir)
        if keep is not None and keep < 1:
            raise PlanError(
                f"{self._where}: keep: expected at least 1 snapshot or None, got {keep}"
            )
        if not 0 < decay <= 1:
            raise PlanError(
                f"{self._where}: decay: expected a number above 0 and at most 1, got {decay}"
            )
        if isinstance(scripted, str):
            raise PlanError(
                f'{self._where}: scripted: expected a list of names, got "{scripted}"; write '
                f'["{scripted}"]'
            )
        self.current: Policy | None = None
        self.records = False
        self.results: Results = Results()
        self._imports = imports
        self._makers = Policies(self._where, make, imports=imports)
        self._shared = Shared(make=self._makers.path, keep=keep)
        self._scripted = sorted({self._makers.checked_scripted(name) for name in scripted})
        self._snapshots: dict[str, Snapshot] = {}  # all that are on disk, oldest first
        self._hidden: set[str] = set()  # those that a loaded state does not know
        self._policies: dict[str, Policy] = {}
        self._rates = WinRates(decay)
        self._writer = secrets.token_hex(8)
        self._check_shared()
        self.refresh()

    # -- members -----------------------------------------------------------------------------------

    @property
    def members(self) -> tuple[str, ...]:
        """Who can be drawn: scripted members, then snapshots from the oldest to the newest."""
        keep = self._shared.keep or len(self._snapshots)
        return (*self._scripted, *list(self._snapshots)[-keep:])

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return f"OpponentPool({self._where!r}, {len(self)} members)"

    def facts(self, name: str) -> dict[str, Fact]:
        """Return the facts that were given when a snapshot was added; none for scripted members.

        Args:
            name: a member's name.
        """
        if name in self._snapshots:
            return dict(self._snapshots[name].facts)
        return {}

    def refresh(self) -> None:
        """Look for members that other processes have added or deleted.

        Raises:
            CheckpointError: the folder was removed, or a file in it is not of a pool.
        """
        if self._folder is None:
            return
        scripted = {self._makers.checked_scripted(name) for name in self._folder.scripted_members()}
        found = {}
        for name in self._folder.snapshot_names():
            with contextlib.suppress(FileNotFoundError):  # deleted a moment ago
                if name not in self._hidden:
                    found[name] = self._snapshots.get(name) or self._folder.read_snapshot(name)
        for name in self._snapshots.keys() - found.keys():
            self._policies.pop(name, None)
        self._snapshots = found
        self._scripted = sorted({*self._scripted, *(scripted - self._hidden)})

    def add(
        self,
        policy: Any,
        *,
        label: str = "",
        facts: Mapping[str, Fact] | None = None,
        take_results: bool = False,
    ) -> str:
        """Add a member by value; later changes to the learner's arrays do not affect it.

        The same arrays at the same place in the order are the same snapshot, which is added once:
        so a run that was saved, went on and is resumed finds the snapshots that it added in
        between.

        Args:
            policy: arrays or tensors by name, as a PyTorch ``state_dict()``; anything that has a
                ``state_dict()`` or whose ``policy`` has one, such as a PyTorch module or a model of
                Stable-Baselines3; or the name of a scripted member, ``"random"`` or an import path.
            label: added to a snapshot's name: ``000012-label``.
            facts: numbers and text to be kept with a snapshot, such as the steps it was trained
                for.
            take_results: whether the learner's games so far are from now on this snapshot's, so
                that snapshots are rated by the games that were played while they were trained.

        Returns:
            The member's name.

        Raises:
            ArgumentError: no such arrays; a pool without ``make`` or without a folder; a bad label
                or fact.
            CheckpointError: the folder cannot be written, or was removed.
        """
        if isinstance(policy, str):
            return self._add_scripted(policy)
        arrays = own_arrays(policy, self._where)
        if self._folder is None:
            raise ArgumentError(
                "pool: a pool without a folder keeps no snapshots; expected OpponentPool(dir)"
            )
        if not self._makers.can_make:
            raise ArgumentError(
                f"{self._where}: add: expected a pool that can make policies from arrays, got one "
                'without make; give OpponentPool(dir, make="module:function")'
            )
        own_facts = dict(facts or {})
        refuse_description(label, own_facts, f"{self._where}: add")
        self._write_shared()
        self.refresh()
        number = 1 + max((sort_key(name)[0] for name in self._snapshots), default=0)
        name = self._folder.add_snapshot(number, label, arrays, own_facts)
        self._hidden.discard(name)
        self.refresh()  # others may have added some, and the last to write deletes all that are old
        if take_results:
            self.results.rename(LEARNER, name)
        self.save()
        keep = self._shared.keep or len(self._snapshots)
        for old in list(self._snapshots)[: -2 * keep]:
            self._folder.remove_snapshot(old)
            del self._snapshots[old]
            self._policies.pop(old, None)
        self._folder.remove_abandoned()
        return name

    def _add_scripted(self, name: str) -> str:
        self._makers.checked_scripted(name)
        if self._folder is not None:
            self._write_shared()
            self._folder.add_scripted(name)
        self._scripted = sorted({*self._scripted, name})
        self._hidden.discard(name)
        return name

    def use_make(self, make: Make) -> None:
        """Make policies with this function, if the pool does not know how yet.

        Args:
            make: as of the constructor.
        """
        self._makers.use_function(make)

    def policy(self, name: str) -> Policy:
        """Return a member's policy; made once, from its file.

        Args:
            name: a member's name, or ``"current"``.

        Raises:
            ArgumentError: no such member, or ``make`` failed.
            SpecError: ``make`` or a scripted member cannot be imported, or may not be.
            CheckpointError: its file is damaged, was changed, or is gone.
        """
        if name == CURRENT:
            if self.current is None:
                raise ArgumentError(
                    f"{self._where}: current: expected pool.current to be the learner's policy, "
                    "got None"
                )
            return self.current
        if name not in self._policies:
            if name in self._scripted:
                self._policies[name] = self._makers.scripted(name)
            elif name in self._snapshots:
                assert self._folder is not None
                snapshot = self._snapshots[name]
                arrays = self._folder.read_arrays(name, snapshot)
                self._policies[name] = self._makers.make(name, arrays, snapshot.arrays)
            else:
                members = ", ".join(self.members)[:1000] or "none"
                raise ArgumentError(
                    f'{self._where}: there is no member "{name}".'
                    f"{did_you_mean(name, self.members)} Members: {members}"
                )
        return self._policies[name]

    # -- the game ----------------------------------------------------------------------------------

    def bind(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        pipeline: str | None = None,
        *,
        write: bool = True,
    ) -> None:
        """Say which game the members play; they must all play the same one.

        Args:
            observation_space: what a policy sees in one row.
            action_space: what it does in one row.
            pipeline: the hash of what else decides what a policy sees; None if it does not matter.
            write: whether the folder remembers it at once, rather than from the next ``add`` or
                ``save`` on.

        Raises:
            CheckpointError: the pool's folder is of another game.
        """
        game = Shared(
            observation_space=" ".join(str(observation_space).split()),
            action_space=" ".join(str(action_space).split()),
            pipeline=pipeline,
        )
        self._check_shared(game)
        self._makers.action_space = action_space
        if write and self._folder is not None and self._folder.exists():
            self._write_shared()

    def _check_shared(self, given: Shared | None = None) -> Shared:
        """Adopt unknown settings from the folder, and return its; refuse another game or make."""
        in_folder = Shared()
        if self._folder is not None:
            in_folder = self._folder.read_shared()
        self._makers.use(in_folder.make)
        self._shared = check_shared(
            self._where,
            [Shared(make=self._makers.path), given or Shared(), self._shared, in_folder],
        )
        return in_folder

    def _write_shared(self) -> None:
        """Write shared settings and scripted members that the folder does not hold yet."""
        assert self._folder is not None
        in_folder = self._check_shared()
        if not self._folder.exists() or in_folder != self._shared:
            self._folder.write_shared(self._shared)
        for name in {*self._scripted} - self._folder.scripted_members():
            self._folder.add_scripted(name)

    # -- drawing -----------------------------------------------------------------------------------

    def draw(
        self, rng: np.random.Generator, sample: str | Rule = "uniform", *, current: float = 0.0
    ) -> str:
        """Draw an opponent, whose policy is then in memory.

        Takes two numbers from the generator, whatever the rule and the members. A snapshot whose
        file another process has deleted is left out, and with the same numbers another one is
        drawn.

        Args:
            rng: where the numbers come from.
            sample: ``latest``; ``uniform``; ``recent:SHARE``, uniform over the last share of the
                members (Bansal et al. 2018); ``pfsp`` or ``pfsp:POWER``, with weights ``(1 - x) **
                power`` for the learner's win rate x (prioritised fictitious self-play, Vinyals et
                al. 2019; 2 by default); ``pfsp:even``, with ``x (1 - x)``; or ``rule(members,
                win_rates)``, which returns a weight for each member, or its import path.
            current: the probability of ``"current"``, the learner's present policy, from 0 to 1.

        Returns:
            The opponent's name.

        Raises:
            ArgumentError: a pool without members, invalid weights, or ``current`` without
                ``pool.current``.
            SpecError: no such rule, or one that ``imports`` refuses.
        """
        if not 0 <= current <= 1:
            raise ArgumentError(
                f"{self._where}: current: expected a probability from 0 to 1, got {current}"
            )
        of_current, of_members = rng.random(2).tolist()
        if of_current < current:
            self.policy(CURRENT)
            return CURRENT
        while True:
            name = self.members[pick(self.shares(sample), of_members)]
            try:
                self.policy(name)
                return name
            except CheckpointError:
                self.refresh()
                if name in self.members:
                    raise

    def shares(self, sample: str | Rule = "uniform") -> FloatArray:
        """Return each member's probability under a rule, (m,) float64, ordered as ``members``.

        Args:
            sample: as in ``draw``.

        Raises:
            ArgumentError: a pool without members, or invalid weights.
            SpecError: no such rule, or one that ``imports`` refuses.
        """
        rule = rule_of(sample, self._where, imports=self._imports)
        win_rates = np.array([self.win_rate(name) for name in self.members])
        return shares(rule, self.members, win_rates, self._where)

    # -- results -----------------------------------------------------------------------------------

    @property
    def is_training(self) -> bool:
        """Whether games are recorded.

        They are in a training, which declares itself, and in a pool of this program alone.
        """
        return self.dir is None or self.records or self.current is not None

    def record(self, opponent: str, result: float, *, seat: int = 0, player: str = LEARNER) -> None:
        """Record how a game ended.

        Args:
            opponent: a member's name, or ``"current"``.
            result: the player's: positive for a win, 0 for a draw, negative for a loss.
            seat: the player's seat, from 0.
            player: who played it: the learner, or a member.

        Raises:
            ArgumentError: a result that is not a number, or no such seat.
        """
        self.results.record(player, opponent, seat=seat, result=result)
        if player == LEARNER and opponent != CURRENT:
            self._rates.record(opponent, result)

    def win_rate(self, opponent: str) -> float:
        """Return the learner's estimated mean result against a member: 1 for a win, 0.5 for a draw.

        Earlier games count less, as ``decay`` says, since the learner changes. One win and one loss
        are added, so that it is 0.5 before the first game, and never 0 or 1: a member who lost its
        first game can still be drawn.

        Args:
            opponent: a member's name.
        """
        return self._rates.of(opponent)

    def all_results(self) -> Results:
        """Return the games that this pool and other processes have recorded in the folder.

        Raises:
            CheckpointError: the folder was removed, or a table in it cannot be read.
        """
        rows = self.results.rows()
        if self._folder is not None:
            rows += self._folder.tables(without=self._writer)
        return Results(rows)

    def ratings(self, anchor: str | None = None) -> Ratings:
        """Fit ratings to all results: a Bradley-Terry model with standard errors, in Elo points.

        The errors take games as independent, as those of a training are; those of a tournament,
        which share seeds, are rated by ``tournament`` itself.

        Args:
            anchor: whose rating is 0; by default ``random`` if it has played, else the first
                scripted member by name that has, else who played most.

        Raises:
            ArgumentError: no games, or an anchor who played none.
        """
        return bradley_terry(self.all_results(), anchor)

    def save(self) -> None:
        """Write the results into the folder, where other processes find them.

        Raises:
            CheckpointError: the folder cannot be written, or was removed.
        """
        if self._folder is not None:
            self._write_shared()
            self._folder.write_table(self._writer, self.results.state())

    # -- saved states ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs besides the folder: who is in the pool, and the results.

        The arrays stay in the folder; a state can be loaded as long as its members are there. The
        run that loads it writes its results where the saved one did, so only one at a time can go
        on from it in the same folder.
        """
        return {
            "snapshots": [[name, snapshot.digest] for name, snapshot in self._snapshots.items()],
            "scripted": list(self._scripted),
            "results": self.results.state(),
            "rates": self._rates.state(),
            "writer": self._writer,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned; nothing is changed if that fails.

        Snapshots that were added to the folder after the state was saved are left out, so that the
        run draws as it would have without a break; what is added from now on is seen as ever.

        Args:
            state: what ``state_dict`` returned.

        Raises:
            CheckpointError: it does not fit, or the folder lacks a member.
        """
        try:
            saved = msgspec.convert(state, State)
            results = Results(read_rows(saved.results, "results"))
            rates = WinRates(self._rates.decay, saved.rates)
        except (TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self._where}: expected a state as state_dict gave it, got another one "
                f"({text_of(error)[:500]})"
            ) from None
        scripted = sorted(map(self._makers.checked_scripted, saved.scripted))
        found = restored(self._folder, saved, self._shared.keep, self._where)
        in_folder = set()
        if self._folder is not None:
            in_folder = {*self._folder.snapshot_names(), *self._folder.scripted_members()}
        self._hidden = in_folder - found.keys() - {*scripted}
        self._snapshots = found
        self._scripted = scripted
        self._policies = {}
        self.results = results
        self._rates = rates
        self._writer = saved.writer


def open_pool(pool: Any, where: str = "opponents") -> OpponentPool:
    """Return the pool of an argument: a pool, its folder, or a list of names.

    Nothing is imported yet.
    """
    if isinstance(pool, OpponentPool):
        return pool
    if isinstance(pool, (str, os.PathLike)):
        return OpponentPool(pool)
    if (
        isinstance(pool, Sequence)
        and not isinstance(pool, bytes)
        and all(isinstance(name, str) for name in pool)
    ):
        return OpponentPool(None, scripted=pool)
    raise ArgumentError(
        f"{where}: pool: expected an OpponentPool, its folder, or a list of scripted members such "
        f'as ["{RANDOM}"], got {str(pool)[:100]}'
    )
