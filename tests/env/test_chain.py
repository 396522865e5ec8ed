"""What a person sees of an environment in an editor: its chain, its names, what finds a wrapper."""

import inspect
import re

import gymnasium
import pytest

import vecwrap
from vecwrap.env.backend import Backend
from vecwrap.pipeline import registry
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor

WRAPPERS = ["time_limit:50", "framestack:4", "normalize_reward", "monitor"]


@pytest.fixture
def env():
    with vecwrap.build("CartPole-v1", n=2, backend="dummy", wrappers=WRAPPERS) as built:
        yield built


class Counted(vecwrap.VecEnvWrapper):
    """A wrapper of a user's, with a result, a method and an argument that it keeps."""

    def __init__(self, env, every: int = 3):
        super().__init__(env)
        self.every = every
        self.steps = 0

    def forget(self):
        self.steps = 0


def test_each_part_of_a_chain_names_itself(env):
    assert repr(env.chain) == "(Monitor(), NormalizeReward(), FrameStack(k=4), Backend(dummy))"
    assert repr(env).startswith("<VecEnv CartPole-v1, n=2, dummy, same_step, wrappers ")
    assert repr(env.chain[0]) == repr(env)
    of = "of VecEnv CartPole-v1, n=2, dummy, same_step>"
    assert [repr(part) for part in env.chain[1:]] == [
        f"<NormalizeReward() {of}",
        f"<FrameStack(k=4) {of}",
        f"<Backend(dummy) {of}",
    ]


def test_a_chain_is_a_tuple(env):
    assert isinstance(env.chain, tuple)
    assert env.chain[0] is env
    assert env.chain[-1] is env.unwrapped
    assert repr(env.unwrapped.chain) == "(Backend(dummy),)"


def test_a_chain_that_was_assembled_by_hand_names_its_classes():
    with Monitor(vecwrap.build("CartPole-v1", n=1, backend="dummy")) as env:
        assert repr(env.chain) == "(Monitor(...), Backend(dummy))"


def test_the_innermost_one_alone_is_the_environment():
    with vecwrap.build("CartPole-v1", n=1, backend="dummy") as env:
        assert repr(env) == "<VecEnv CartPole-v1, n=1, dummy, same_step>"


@pytest.mark.parametrize("name", ["framestack", "FrameStack", "frame_stack"])
def test_a_wrapper_is_found_by_its_name(env, name):
    assert env.find(name) is env.find(FrameStack)


def test_the_name_in_the_pipeline_counts():
    vecwrap.register_wrapper("every_third", Counted)
    try:
        with vecwrap.build("CartPole-v1", n=1, backend="dummy", wrappers=["every_third"]) as env:
            assert env.find("every_third") is env
            assert env.find("counted") is env
    finally:
        registry.wrappers.unregister("every_third")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("monitr", 'no wrapper "monitr" around .* are monitor, .*Did you mean "monitor"?'),
        ("time_limit", "it wraps each sub-environment; env.get_attr and env.call reach it"),
        ("video", 'no wrapper "video" around the vector; those here are monitor, normalize_rew'),
    ],
)
def test_a_wrapper_that_is_not_there(env, name, said):
    with pytest.raises(LookupError, match=said.replace("?", r"\?")):
        env.find(name)


def public(names):
    return {name for name in names if not name.startswith("_")}


def documented(kind):
    """The names in a class's section Attributes, and its public methods and properties."""
    section = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
    listed = re.findall(r"^    ([a-z_, ]+):", section.partition("\n\n")[0], re.MULTILINE)
    return {name for names in listed for name in names.split(", ")}


def test_dir_shows_what_a_vec_env_documents(env):
    shown = public(dir(env.unwrapped))
    assert {"reset", "step", "send", "recv", "num_envs", "pipeline", "find", "save"} <= shown
    assert not shown & {"core", "call_state", "rows", "array_converter", "saved_to", "plan"}
    assert not shown & public(vars(vecwrap.Declares))
    # the three for adapters and tools are documented, and no names to be completed
    hidden = {"core", "call_state", "array_converter"}
    assert documented(vecwrap.VecEnv) - hidden <= shown
    methods = public(vars(vecwrap.VecEnv)) - {"plan", "rows", "saved_to", "written", "wrapped_by"}
    assert methods - hidden <= shown
    gymnasiums = public(dir(gymnasium.vector.VectorEnv)) | public(
        gymnasium.vector.VectorEnv.__annotations__
    )
    assert shown == (documented(vecwrap.VecEnv) | methods | gymnasiums) - hidden - {"close_extras"}


@pytest.mark.parametrize("name", registry.wrappers.names())
def test_a_wrapper_adds_only_what_it_documents(name):
    """Its arguments, hooks and insides are no names of the environment."""
    kind = registry.wrappers.load(name)
    if not (inspect.isclass(kind) and issubclass(kind, vecwrap.VecEnvWrapper)):
        return
    own = {
        name
        for base in kind.__mro__
        if not base.__module__.startswith("vecwrap.env.")
        for name, value in vars(base).items()
        if isinstance(value, property)
    } - public(dir(vecwrap.VecEnv))
    arguments = set(inspect.signature(kind).parameters)
    documented_here = documented(kind) | {
        name for name in own if inspect.getdoc(inspect.getattr_static(kind, name))
    }
    assert own <= documented_here
    kept = re.findall(r"^ +self\.([a-z]\w*)(?:: [^=]+)? = ", inspect.getsource(kind), re.MULTILINE)
    assert (set(kept) - public(dir(vecwrap.VecEnv))) & arguments <= documented_here


def test_arguments_of_the_outermost_wrapper_are_not_the_environments(env):
    for name in ("rewards", "log", "per_env", "resume", "info_keys", "stats_key", "count"):
        assert name not in dir(env)
        with pytest.raises(AttributeError, match=f"'VecEnv' object has no attribute '{name}'"):
            getattr(env, name)
    with pytest.raises(AttributeError, match="argument of Monitor: see env.chain, or env.pipeline"):
        env.rewards  # noqa: B018


def test_what_a_users_wrapper_has_is_shown_without_its_argument_and_hooks():
    with vecwrap.build("CartPole-v1", n=1, backend="dummy", wrappers=[Counted]) as env:
        added = public(dir(env)) - public(dir(env.unwrapped))
        assert added == {"steps", "forget"}
        assert env.every == 3
        with pytest.raises(AttributeError, match="'Counted' object has no attribute 'stps'"):
            env.stps  # noqa: B018


def test_an_evaluation_leaves_the_environment_as_it_is_shown(env):
    before = [repr(part) for part in env.chain]
    vecwrap.evaluate(env, lambda observations: [0] * len(observations), episodes=2)
    assert [repr(part) for part in env.chain] == before


def test_what_holds_everything_is_short(env):
    assert repr(env.plan) == f"<Plan {env.pipeline}>"
    assert repr(env.health()) == "<Health 0 restarts, 0 lost episodes>"
    assert env.find(Backend) is env.unwrapped
