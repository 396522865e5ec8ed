"""Arguments arrive as the type that was given, deep inside too, and are nobody else's."""

import threading
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from vecwrap.errors import SpecError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec

Point = namedtuple("Point", "x y")


class Attributes(dict[str, Any]):
    """Any attribute is a key; the usual three words, of which ``deepcopy`` makes a KeyError."""

    __getattr__ = dict.__getitem__


class Linked(dict[str, Any]):
    """Attributes and keys are one; ``copy`` and ``deepcopy`` separate them."""

    def __init__(self, **items: Any) -> None:
        super().__init__(items)
        self.__dict__ = self


class Frozen(Mapping[str, Any]):
    """A mapping that is not a dict."""

    def __init__(self, **items: Any) -> None:
        self._items = items

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Holds(gymnasium.Env[Any, Any]):
    """Keeps what it is given."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, value: Any = None, other: Any = None) -> None:
        self.value, self.other = value, other

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def seen(self) -> Any:
        return described(self.value)

    def is_one(self) -> bool:
        return self.value is self.other

    def spoil(self) -> None:
        self.value["a"] = "spoilt"


class Takes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that keeps what it is given."""

    def __init__(
        self, env: Any, value: Any, checked: dict[str, Any] | tuple[Any, ...] | None = None
    ) -> None:
        super().__init__(env)
        self.taken, self.checked = value, checked

    def seen(self) -> Any:
        return described(self.taken)

    def seen_checked(self) -> Any:
        return described(self.checked)


class Vector(vecwrap.VecEnvWrapper):
    """A wrapper of the vector that keeps what it is given."""

    def __init__(
        self, env: vecwrap.VecEnv, value: Any, checked: dict[str, Any] | None = None
    ) -> None:
        super().__init__(env)
        self.taken, self.checked = value, checked


TAKES, VECTOR = f"{__name__}:Takes", f"{__name__}:Vector"


def described(value: Any) -> Any:
    """The types of a value and of its parts, in order."""
    name = type(value).__name__
    if isinstance(value, Mapping):
        return name, [(key, described(part)) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        return name, [described(part) for part in value]
    return name, repr(value)


def given() -> list[Any]:
    inside = Attributes(b=Point(1, 2), c=[spaces.Dict(d=spaces.Discrete(2))])
    return [
        spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Dict(c=spaces.Discrete(2))),
        Attributes(a=1, inside=inside),
        Linked(a=1, inside=inside),
        Frozen(a=1, inside=inside),
        OrderedDict(b=1, a=inside),
        defaultdict(list, a=inside),
        MappingProxyType({"a": inside}),
        Point(1, inside),
        {"a": (OrderedDict(b=1), [MappingProxyType({"c": Linked(d=1)})])},
    ]


@pytest.mark.parametrize("value", given(), ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("backend", ["dummy", "subprocess", "shmem"])
def test_arguments_arrive_as_the_type_that_was_given(value: Any, backend: str) -> None:
    wrappers = [{TAKES: {"value": value}}, {TAKES: {"*": [value]}}, {VECTOR: {"value": value}}]
    before = described(value)
    with vecwrap.build(Holds, 2, wrappers, backend=backend, env_kwargs={"value": value}) as env:
        assert env.call("seen") == (before, before)
        assert [described(held) for held in env.get_attr("value")] == [before, before]
        assert described(env.taken) == before
    assert described(value) == before


@pytest.mark.filterwarnings(
    "ignore:.*copying the environment spec"
)  # Gymnasium's, where it cannot copy
@pytest.mark.parametrize("value", given(), ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("backend", ["dummy", "shmem"])
def test_so_do_those_of_an_id(value: Any, backend: str) -> None:
    gymnasium.register("Holds-v0", Holds)
    try:
        with vecwrap.build("Holds-v0", 2, backend=backend, env_kwargs={"value": value}) as env:
            assert env.call("seen") == (described(value),) * 2
    finally:
        del gymnasium.registry["Holds-v0"]


@pytest.mark.parametrize(
    "value",
    [Attributes(a=1), OrderedDict(a=1), {"a": Frozen(b=1)}, {"a": Point(1, 2)}],
    ids=["attributes", "ordered", "frozen", "point"],
)
def test_an_annotation_is_checked_without_changing_the_type(value: Any) -> None:
    wrappers = [{TAKES: {"value": 1, "checked": value}}]
    wrappers.append({VECTOR: {"value": 1, "checked": value}})
    with vecwrap.build(Holds, 1, wrappers, backend="dummy") as env:
        assert env.call("seen_checked") == (described(value),)
        assert described(env.checked) == described(value)
    with pytest.raises(SpecError, match="expected dict"):
        plan(PipelineSpec(Holds, wrappers=[{TAKES: {"value": 1, "checked": 3}}]))


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
def test_gymnasiums_transform_takes_a_dict_space(backend: str) -> None:
    space = spaces.Dict(inside=spaces.Box(-np.inf, np.inf, (4,), np.float32))
    transform = {"func": lambda observation: {"inside": observation}, "observation_space": space}
    wrappers = [{"gymnasium.wrappers:TransformObservation": transform}]
    with vecwrap.build("CartPole-v1", 2, wrappers, backend=backend) as env:
        assert env.single_observation_space == space
        observations, _ = env.reset(seed=1)
        assert observations["inside"].shape == (2, 4)


def test_arguments_are_copied_for_each_environment_and_never_changed() -> None:
    for value in (Attributes(a=1), Linked(a=1), OrderedDict(a=1), {"a": 1}):
        with vecwrap.build(Holds, 2, backend="dummy", env_kwargs={"value": value}) as env:
            env.call("spoil")
            first, second = env.unwrapped.runner.local.sources
            assert first.env.unwrapped.value["a"] == "spoilt"
            assert first.env.unwrapped.value is not second.env.unwrapped.value
            if isinstance(value, (Attributes, Linked)):
                assert first.env.unwrapped.value.a == "spoilt"
        assert value["a"] == 1


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
def test_what_is_given_twice_stays_one(backend: str) -> None:
    shared = np.random.default_rng(1)
    with vecwrap.build(
        Holds, 1, backend=backend, env_kwargs={"value": shared, "other": shared}
    ) as env:
        assert env.call("is_one") == (True,)


def test_what_cannot_be_copied_is_passed_as_it_is_beside_what_can() -> None:
    lock, inner = threading.Lock(), Attributes(a=1)
    gymnasium.register("Holds-v0", Holds)
    try:
        for target in (Holds, "Holds-v0"):
            kwargs = {"value": lock, "other": inner}
            with (
                pytest.warns(UserWarning, match="copying the environment spec")
                if target == "Holds-v0"
                else threading.Lock()
            ):
                env = vecwrap.build(target, 2, backend="dummy", env_kwargs=kwargs)
            (held, other), _ = (
                (each.env.unwrapped.value, each.env.unwrapped.other)
                for each in env.unwrapped.runner.local.sources
            )
            assert held is lock
            assert other is not inner
            env.close()
    finally:
        del gymnasium.registry["Holds-v0"]


def test_wrappers_of_the_vector_receive_shared_objects_themselves() -> None:
    log = threading.Lock()
    with vecwrap.build(Holds, 1, [{VECTOR: {"value": {"log": log}}}], backend="dummy") as env:
        assert env.taken["log"] is log
    config = Attributes(log=log)
    with vecwrap.build(Holds, 1, [{VECTOR: {"value": config}}], backend="dummy") as env:
        assert env.taken.log is log


def test_a_dict_given_to_a_spec_may_change_afterwards() -> None:
    for value in ({"a": [1]}, OrderedDict(a=[1]), defaultdict(list, a=[1])):
        spec = PipelineSpec("CartPole-v1", env_kwargs={"value": value})
        value["a"].append(2)
        value["b"] = 3
        assert spec.env_kwargs["value"] == {"a": [1]}
        assert type(spec.env_kwargs["value"]) is type(value)


def test_plain_mappings_are_written_and_others_are_refused() -> None:
    spec = PipelineSpec(
        "CartPole-v1", n=1, env_kwargs={"value": OrderedDict(b=MappingProxyType({"a": 1}))}
    )
    assert spec.to_dict()["env_kwargs"] == {"value": {"b": {"a": 1}}}
    assert PipelineSpec.from_yaml(spec.to_yaml()) == spec
    assert plan(PipelineSpec.from_yaml(spec.to_yaml())).pipeline.hash == plan(spec).pipeline.hash
    for value in (Attributes(a=1), Frozen(a=1), spaces.Dict(), defaultdict(list)):
        spec = PipelineSpec(Holds, n=1, env_kwargs={"value": value})
        with pytest.raises(SpecError, match="cannot be written"):
            spec.to_yaml()
        assert len(plan(spec).pipeline.hash) == 12
        assert spec == PipelineSpec(Holds, n=1, env_kwargs={"value": value})
    config = PipelineSpec(Holds, env_kwargs={"config": Attributes(a=1)})
    with pytest.raises(
        SpecError, match=r"env_kwargs: \{a: 1\}, of the type Attributes, .* dict\(\.\.\.\)"
    ):
        config.to_dict()


def test_the_hash_follows_the_contents_of_mappings_and_spaces() -> None:
    def hashed(value: Any) -> str:
        return plan(PipelineSpec(Holds, n=1, env_kwargs={"value": value})).pipeline.hash

    assert hashed(Attributes(a=1)) == hashed(Attributes(a=1)) != hashed(Attributes(a=2))
    small, large = (spaces.Dict(a=spaces.Box(0, high, (2,))) for high in (1, 2))
    assert hashed(small) == hashed(spaces.Dict(a=spaces.Box(0, 1, (2,)))) != hashed(large)
    assert PipelineSpec(Holds, env_kwargs={"value": small}) != PipelineSpec(
        Holds, env_kwargs={"value": large}
    )


def test_a_change_of_one_key_keeps_the_type_of_the_rest() -> None:
    config = Linked(a=1, b=Attributes(c=2, d=3))
    spec = PipelineSpec(
        Holds, env_kwargs={"value": config}, eval={"env_kwargs": {"value": {"b": {"c": 4}}}}
    )
    for changed in (
        spec.override(**{"env_kwargs.value.b.c": 4}).env_kwargs["value"],
        vecwrap.pipeline.evaluation.evaluation(spec).env_kwargs["value"],
    ):
        assert described(changed) == described(Linked(a=1, b=Attributes(c=4, d=3)))
        assert changed.b.c == 4
    assert config.b.c == 2
    whole = spec.override(eval={"env_kwargs": {"value": Attributes(z=1)}})
    assert vecwrap.pipeline.evaluation.evaluation(whole).env_kwargs["value"] == {"z": 1}
    fixed = PipelineSpec(Holds, env_kwargs={"value": spaces.Dict(a=spaces.Discrete(2))})
    with pytest.raises(SpecError, match="a Dict is replaced as a whole"):
        fixed.override(**{"env_kwargs.value.a": spaces.Discrete(3)})


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
def test_a_config_dict_is_taken_as_one_and_by_its_names(backend: str) -> None:
    config_dict = pytest.importorskip("ml_collections").ConfigDict
    config = config_dict({"a": 1, "b": {"c": 2}})
    for kwargs in ({"value": config}, config_dict({"value": config})):
        with vecwrap.build(Holds, 2, backend=backend, env_kwargs=kwargs) as env:
            assert [(type(held), held.b.c) for held in env.get_attr("value")] == [
                (config_dict, 2)
            ] * 2
    spec = PipelineSpec(Holds, env_kwargs={"value": config})
    with pytest.raises(SpecError, match="a ConfigDict is replaced as a whole"):
        spec.override(**{"env_kwargs.value.b.c": 3})
    with pytest.raises(SpecError, match="cannot be written down"):
        spec.to_yaml()


def test_a_space_is_shown_as_a_space() -> None:
    spec = PipelineSpec(Holds, n=1, env_kwargs={"value": spaces.Dict(a=spaces.Discrete(2))})
    assert str(spec).endswith("env_kwargs.value=Dict('a': Discrete(2))")
