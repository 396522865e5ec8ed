"""The laws of the conformance kit, over every backend and every registered wrapper."""

import re
from dataclasses import replace
from functools import partial

import ale_py
import gymnasium
import pytest
from gymnasium.wrappers import TimeLimit

from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend, ThreadsBackend
from tests.helpers.fake_atari import FIRES, Game
from vecwrap.errors import is_installed
from vecwrap.pipeline import registry
from vecwrap.pipeline.build import wrap
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.testing import BACKEND_LAWS, WRAPPER_LAWS, Subject, check_backend, check_wrapper, toy
from vecwrap.testing.backends import (
    attributes_reach_the_environment,
    close_is_idempotent,
    close_releases_everything,
    errors_are_isolated,
    failed_start_releases_everything,
    same_rows_by_send_and_recv,
    same_stream_in_every_mode,
)
from vecwrap.testing.wrappers import (
    backend_invariance,
    correct_in_every_autoreset_mode,
    resumes_after_load,
)
from vecwrap.wrappers.atari import Atari
from vecwrap.wrappers.check_nan import CheckNan
from vecwrap.wrappers.clip_action import ClipAction
from vecwrap.wrappers.clip_reward import ClipReward
from vecwrap.wrappers.dtype import Dtype
from vecwrap.wrappers.episodic_life import EpisodicLife
from vecwrap.wrappers.extract_obs import ExtractObs
from vecwrap.wrappers.filter_obs import FilterObs
from vecwrap.wrappers.fire_reset import FireReset
from vecwrap.wrappers.flatten import Flatten
from vecwrap.wrappers.frame_skip import FrameSkip
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.grayscale import Grayscale
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.noop_reset import NoopReset
from vecwrap.wrappers.normalize import Normalize
from vecwrap.wrappers.normalize_obs import NormalizeObs
from vecwrap.wrappers.normalize_reward import NormalizeReward
from vecwrap.wrappers.record_trajectories import RecordTrajectories
from vecwrap.wrappers.rescale_action import RescaleAction
from vecwrap.wrappers.resize import Resize
from vecwrap.wrappers.scale_obs import ScaleObs
from vecwrap.wrappers.scale_reward import ScaleReward
from vecwrap.wrappers.seed_each_episode import SeedEachEpisode
from vecwrap.wrappers.sticky_actions import StickyActions
from vecwrap.wrappers.terminal_obs import TerminalObs
from vecwrap.wrappers.tile import Tile
from vecwrap.wrappers.time_aware import TimeAware
from vecwrap.wrappers.transpose import Transpose
from vecwrap.wrappers.video import Video

gymnasium.register_envs(ale_py)

# Episodes so short that a few steps meet every kind of end and of reset several times in each of
# the four modes; the long runs go further.
FEW = 16
short = partial(toy, end=0.12)

# From the fork server, because laws start workers by the dozen; those that the start could matter
# to are tried over fresh interpreters, too, which are what users have.
PROCESSES = {
    "subprocess": partial(SubprocessBackend, workers=2, start_method="forkserver"),
    "shmem": partial(ShmemBackend, workers=2, start_method="forkserver"),
}
BACKENDS = {"dummy": DummyBackend, "threads": partial(ThreadsBackend, workers=2), **PROCESSES}
PROCESS_BACKENDS = pytest.mark.parametrize("backend", [SubprocessBackend, ShmemBackend])


# One backend of processes keeps every law in the suite, and dummy, which the streams of all are
# compared with, those that take no time; how rows travel differs under the others.
OF_ROWS = (same_stream_in_every_mode, errors_are_isolated)


# Laws that take long, with fewer steps than users' own backends are tried with.
STEPS = {
    "same_stream_in_every_mode": 70,
    "same_rows_by_send_and_recv": 12,
    "every_space_round_trips": 10,
    "results_never_change": 50,
}


def law_of_a_backend(backend, law):
    in_suite = backend == "shmem" or (
        law in OF_ROWS if backend != "dummy" else law.__name__ not in STEPS
    )
    return pytest.param(
        backend, law, id=f"{backend}-{law.__name__}", marks=() if in_suite else pytest.mark.full
    )


@pytest.mark.parametrize(
    ("backend", "law"),
    [law_of_a_backend(backend, law) for backend in BACKENDS for law in BACKEND_LAWS],
)
def test_every_backend_keeps_every_law(backend, law):
    law(BACKENDS[backend], **({"steps": STEPS[law.__name__]} if law.__name__ in STEPS else {}))


@pytest.mark.full
@pytest.mark.parametrize("backend", ["dummy", "shmem"])
@pytest.mark.parametrize(
    "law", [law for law in BACKEND_LAWS if law.__name__ in STEPS], ids=lambda law: law.__name__
)
def test_a_backend_keeps_them_for_as_long_as_users_are_tried(backend, law):
    law(BACKENDS[backend])


@pytest.mark.full
@pytest.mark.parametrize(  # how workers start and end is one piece of code under both backends
    ("backend", "law"),
    [
        (ShmemBackend, close_releases_everything),
        (SubprocessBackend, failed_start_releases_everything),
        (SubprocessBackend, close_is_idempotent),
    ],
)
def test_fresh_interpreters_leave_nothing_behind_either(backend, law):
    law(partial(backend, workers=2, start_method="fresh"))


@pytest.mark.parametrize(
    ("backend", "start_method"),  # the laws above are over the fork server
    [
        pytest.param(SubprocessBackend, "spawn", marks=pytest.mark.full),
        (ShmemBackend, "fresh"),
        pytest.param(ShmemBackend, "fork", marks=pytest.mark.full),
    ],
)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_start_method_makes_no_difference(backend, start_method):
    make_backend = partial(backend, workers=1, start_method=start_method)
    same_stream_in_every_mode(make_backend, steps=70)
    attributes_reach_the_environment(make_backend)


@pytest.mark.soak
@pytest.mark.parametrize("law", BACKEND_LAWS, ids=lambda law: law.__name__)
@PROCESS_BACKENDS
def test_every_law_holds_over_fresh_interpreters(backend, law):
    law(partial(backend, workers=2, start_method="fresh"))


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2, 3])
@PROCESS_BACKENDS
def test_the_laws_hold_for_a_thousand_steps(backend, workers):
    make_backend = partial(backend, workers=workers, start_method="fresh")
    same_stream_in_every_mode(make_backend, steps=1000)
    same_rows_by_send_and_recv(make_backend, steps=400)


def test_check_backend_runs_the_laws_it_is_given():
    ran = []
    check_backend(DummyBackend, laws=[lambda make_backend: ran.append(make_backend)] * 2)
    assert ran == [DummyBackend, DummyBackend]


def seeds_and_levels(episode, index):
    """A schedule for seed_each_episode."""
    return 7 * episode + index, {"level": episode}


def on_toys(wrap, factory=None, steps=200, **settings):
    return Subject(wrap, factory or short(), steps, **settings)


def nothing_around(env):
    """For wrappers that run inside the sub-environment."""
    return env


def lives(*wrappers):
    return SubEnvFactory(
        partial(Game, FIRES, lives=[3] * 4 + [2] * 6 + [1] * 3, rewards=[0, 1, 2], over=17),
        wrappers,
    )


def breakout(*wrappers, **keywords):
    return SubEnvFactory(partial(gymnasium.make, "BreakoutNoFrameskip-v4", **keywords), wrappers)


SUBJECTS = {
    "atari": Subject(
        nothing_around, breakout(Atari, partial(TimeLimit, max_episode_steps=12)), steps=26
    ),
    "atari:machado": Subject(
        nothing_around,
        breakout(
            partial(Atari, lineage="machado", noop_max=2),
            partial(TimeLimit, max_episode_steps=6),
            repeat_action_probability=0.25,
        ),
        steps=14,
    ),
    "clip_reward": on_toys(ClipReward),
    "clip_reward:-500,500": on_toys(partial(ClipReward, low=-500, high=500)),
    "episodic_life": Subject(nothing_around, lives(EpisodicLife), steps=60),
    "fire_reset": Subject(nothing_around, lives(EpisodicLife, FireReset), steps=60),
    "frame_skip:3": on_toys(
        nothing_around, SubEnvFactory(toy(), (partial(FrameSkip, frame_skip=3),)), steps=60
    ),
    "frame_skip:3,pooling=max": on_toys(
        nothing_around,
        SubEnvFactory(toy(), (partial(FrameSkip, frame_skip=3, pooling="max"),)),
        steps=60,
    ),
    "framestack:3": on_toys(partial(FrameStack, k=3)),
    "framestack of members": on_toys(
        partial(FrameStack, k=2, keys=("position",)), short(observations="mixed")
    ),
    "framestack:2,axis=channel,padding=first": on_toys(
        partial(FrameStack, k=2, axis="channel", padding="first"), short(observations="box_uint8")
    ),
    "grayscale": on_toys(
        nothing_around, SubEnvFactory(short(observations="box_uint8"), (Grayscale,)), steps=60
    ),
    "monitor": on_toys(Monitor),
    "monitor:rewards=seen": on_toys(partial(Monitor, rewards="seen")),
    "mujoco": on_toys(
        partial(wrap, wrappers=["mujoco"]), short(actions="box_float32"), independent=False
    ),
    "noop_reset": on_toys(
        nothing_around, SubEnvFactory(short(), (partial(NoopReset, noop_max=4),)), steps=60
    ),
    "record_trajectories": on_toys(
        partial(RecordTrajectories, info_keys=(), max_steps=7),
        short(observations="box_uint8", actions="multi_discrete"),
        steps=60,
    ),
    "resize": on_toys(
        nothing_around,
        SubEnvFactory(short(observations="box_uint8"), (partial(Resize, height=3),)),
        steps=60,
    ),
    "sticky_actions": on_toys(nothing_around, SubEnvFactory(short(), (StickyActions,)), steps=60),
    "sticky_actions of arrays": on_toys(
        nothing_around, SubEnvFactory(short(actions="box_float32"), (StickyActions,)), steps=60
    ),
    "terminal_obs": on_toys(TerminalObs),
    "terminal_obs:record=2": on_toys(partial(TerminalObs, record=2)),
    "terminal_obs over nested spaces": on_toys(
        TerminalObs, short(observations="nested", actions="nested")
    ),
    "terminal_obs over spaces without arrays": on_toys(TerminalObs, short(observations="mixed")),
    "time_limit": on_toys(
        nothing_around, SubEnvFactory(toy(), (partial(TimeLimit, max_episode_steps=7),))
    ),
    "check_nan": on_toys(CheckNan, short(observations="mixed", actions="box_float32"), steps=60),
    "clip_action": on_toys(ClipAction, short(actions="box_float32"), steps=60),
    "dtype:float64": on_toys(partial(Dtype, dtype="float64")),
    "dtype:float64 over members": on_toys(
        partial(Dtype, dtype="float64", keys=("a",)), short(observations="dict")
    ),
    "extract_obs:loose": on_toys(
        partial(ExtractObs, key="loose"), short(observations="mixed"), steps=60
    ),
    "filter_obs:mesh": on_toys(
        partial(FilterObs, keys=("mesh", "position")), short(observations="mixed"), steps=60
    ),
    "flatten": on_toys(Flatten, short(observations="nested", actions="nested"), steps=60),
    "normalize": on_toys(
        partial(Normalize, keys=("position",)), short(observations="mixed"), 60, independent=False
    ),
    "normalize_obs": on_toys(NormalizeObs, short(observations="box_float64"), independent=False),
    "normalize_obs:integers": on_toys(
        partial(NormalizeObs, integers=True, clip=2),
        short(observations="box_uint8"),
        independent=False,
    ),
    "normalize_reward": on_toys(NormalizeReward, independent=False),
    "rescale_action": on_toys(
        partial(RescaleAction, low=0, high=4), short(actions="box_float32"), steps=60
    ),
    "scale_obs": on_toys(ScaleObs, short(observations="box_uint8"), steps=60),
    "scale_reward:0.1": on_toys(partial(ScaleReward, factor=0.1)),
    "time_aware:limit=40": on_toys(partial(TimeAware, limit=40), short(observations="dict")),
    "time_aware:limit=40,flatten=false": on_toys(
        partial(TimeAware, limit=40, flatten=False), short(observations="mixed"), steps=60
    ),
    "seed_each_episode": on_toys(partial(SeedEachEpisode, seeds=seeds_and_levels), steps=60),
    "tile:true": on_toys(partial(Tile, labels=True), short(render_mode="rgb_array"), steps=60),
    "transpose": on_toys(Transpose, short(observations="box_uint8"), steps=60),
    "video": on_toys(
        partial(Video, every=3, files="each", length=3),
        short(render_mode="rgb_array"),
        steps=40,
        changes=("frames",),  # it is who asks for them
    ),
    "several wrappers over observations and actions": on_toys(
        lambda env: CheckNan(
            ClipAction(RescaleAction(TimeAware(ScaleObs(env, keys=("a",)), limit=40)))
        ),
        short(observations="dict", actions="box_float32"),
        steps=60,
    ),
    "all vector wrappers": on_toys(
        lambda env: TerminalObs(Monitor(ClipReward(FrameStack(env, 2))))
    ),
}


# The law that compares backends is tried over processes, below.
LAWS_OVER_DUMMY = [law for law in WRAPPER_LAWS if law is not backend_invariance]

# The suite holds one wrapper of each kind to every law, and each one, with the first of its
# settings, to these two.
FOR_ALL = (correct_in_every_autoreset_mode, resumes_after_load)
FIRST_SETTINGS = {re.match(r"\w+", subject)[0]: subject for subject in reversed(SUBJECTS)}.values()
ONE_OF_EACH_KIND = (
    "clip_reward",  # rewards
    "clip_action",  # actions
    "framestack:3",  # a history of each row
    "monitor",  # infos
    "normalize_obs",  # statistics that rows share
    "sticky_actions",  # inside the sub-environment
    "terminal_obs over spaces without arrays",
)


def law_of_a_wrapper(subject, law):
    marks = []
    if (law not in FOR_ALL or subject not in FIRST_SETTINGS) and subject not in ONE_OF_EACH_KIND:
        marks.append(pytest.mark.full)
    if subject == "record_trajectories" and not is_installed("minari"):
        marks.append(pytest.mark.skip("the lower bounds have no Minari"))
    # tests/env/test_checkpoint.py has it, too.
    if (subject, law) == (
        "atari",
        resumes_after_load,
    ):
        marks.append(pytest.mark.full)
    if subject == "atari:machado":
        marks.append(pytest.mark.soak)
    return pytest.param(subject, law, id=f"{subject}-{law.__name__}", marks=marks)


@pytest.mark.parametrize(
    ("subject", "law"),
    [law_of_a_wrapper(subject, law) for subject in SUBJECTS for law in LAWS_OVER_DUMMY],
)
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
def test_every_wrapper_keeps_every_law(subject, law, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    law(replace(SUBJECTS[subject], steps=min(FEW, SUBJECTS[subject].steps)))


@pytest.mark.soak
@pytest.mark.parametrize("law", LAWS_OVER_DUMMY, ids=lambda law: law.__name__)
@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
def test_every_wrapper_keeps_every_law_for_long(subject, law, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    law(SUBJECTS[subject])


# Wrappers run in front of a backend or inside of its sub-environments, and those in front know
# none. So over processes are those inside, and those whose values a backend carries in a way of its
# own; over the second backend the latter alone. The long runs have all over both.
OVER_SUBPROCESS = [
    "atari",
    "seed_each_episode",
    "terminal_obs over nested spaces",
    "terminal_obs over spaces without arrays",
    "video",
    "all vector wrappers",
]
OVER_SHMEM = [
    *OVER_SUBPROCESS,
    *(
        name
        for name, subject in SUBJECTS.items()
        if subject.wrap is nothing_around and name != "atari"
    ),
    "framestack of members",
    "monitor",
    "normalize",
    "several wrappers over observations and actions",
    "tile:true",
]
# One that runs in the sub-environment, one whose frames travel, one whose values are objects, and a
# chain.
IN_SUITE = (
    "sticky_actions",
    "video",
    "terminal_obs over spaces without arrays",
    "all vector wrappers",
)


@pytest.mark.parametrize(
    ("backend", "subject"),
    [
        *(
            ("shmem", subject)
            if subject in IN_SUITE
            else pytest.param("shmem", subject, marks=pytest.mark.full)
            for subject in OVER_SHMEM
        ),
        *(
            pytest.param("subprocess", subject, marks=pytest.mark.full)
            for subject in OVER_SUBPROCESS
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
def test_every_wrapper_is_the_same_over_every_backend(subject, backend, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = replace(SUBJECTS[subject], backend=PROCESSES[backend], steps=16)
    # Each seed loads a ROM.
    backend_invariance(few, num_envs=2 if subject.startswith("atari") else 3)


@pytest.mark.soak
@pytest.mark.parametrize("law", WRAPPER_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("backend", PROCESSES)
@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
def test_every_wrapper_keeps_every_law_over_processes(subject, backend, law, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    law(replace(SUBJECTS[subject], backend=PROCESSES[backend]))


def test_no_registered_wrapper_or_backend_is_left_out():
    checked = {subject.partition(":")[0] for subject in SUBJECTS}
    checked.add("opponents")  # tests/selfplay/test_opponents.py holds it to those that suit games
    assert {
        entry
        for entry in registry.wrappers.names()
        if registry.wrappers.entry(entry).owner == "vecwrap"
    } <= checked
    ours = {
        entry
        for entry in registry.backends.names()
        if registry.backends.entry(entry).owner == "vecwrap"
    }
    assert ours <= {*BACKENDS, "ray"}  # tests/backends/test_ray.py runs the laws over actors
    assert {"dummy", "threads", *PROCESSES} == set(BACKENDS)


def test_check_wrapper_runs_the_laws_it_is_given():
    ran = []
    check_wrapper(Monitor, steps=7, backend=ShmemBackend, laws=[ran.append] * 2)
    assert [(subject.wrap, subject.steps, subject.backend) for subject in ran] == [
        (Monitor, 7, ShmemBackend)
    ] * 2
