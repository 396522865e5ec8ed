"""What frames are counted, and whether there are any."""

from functools import partial

import gymnasium
import pytest
from gymnasium.wrappers import TimeLimit

import vecwrap
from tests.helpers.multi_agent_games import Guests
from vecwrap.errors import ArgumentError, PlanError


def check(line, *wrappers, **settings):
    settings = {"n": 2, "backend": "dummy", **settings}
    return vecwrap.check(line, **settings, **({"wrappers": wrappers} if wrappers else {}))


# -- pictures that nothing renders -----------------------------------------------------------------


@pytest.mark.parametrize("wrapper", ["video", "tile"])
@pytest.mark.parametrize("backend", ["dummy", "subprocess"])
def test_no_render_mode_is_an_error_that_is_told_once(wrapper, backend):
    (finding,) = check("CartPole-v1", wrapper, backend=backend)
    assert (finding.id, finding.severity, finding.wrapper) == ("refused", "error", wrapper)
    assert 'render_mode="rgb_array", got None' in finding.reason
    with pytest.raises(PlanError, match="rgb_array"):
        vecwrap.build("CartPole-v1", 2, [wrapper], backend="dummy")


@pytest.mark.parametrize("wrapper", ["video", "tile"])
def test_images_that_are_rendered(wrapper):
    assert check("CartPole-v1", wrapper, render_mode="rgb_array") == ()
    assert check("CartPole-v1", wrapper, env_kwargs={"render_mode": "rgb_array"}) == ()


def test_another_render_mode_is_named(camera_and_joints):
    (finding,) = check(camera_and_joints, "video", render_mode="ansi")
    assert "got 'ansi'" in finding.reason


class Blind(gymnasium.Env):
    """Draws nothing, and says so."""

    metadata = {"render_modes": []}
    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(2)


class Text(Blind):
    metadata = {"render_modes": ["ansi"]}


class Silent(Guests):
    """Says nothing of pictures."""

    metadata = {"name": "silent"}


@pytest.mark.parametrize("wrapper", ["video", "tile"])
@pytest.mark.parametrize(
    ("make", "modes"), [(Guests, "none"), (Silent, "none"), (Blind, "none"), (Text, "ansi")]
)
def test_what_draws_no_pictures_is_not_told_to_render_any(make, modes, wrapper):
    said = f"draws none: no mode in its metadata gives images (render_modes: {modes})"
    (finding,) = check(make, wrapper)
    assert finding.id == "refused"
    assert said in finding.reason
    with pytest.raises(PlanError) as refused:
        vecwrap.build(make, n=1, wrappers=[wrapper], backend="dummy")
    with vecwrap.build(make, n=1, backend="dummy") as env, pytest.raises(ArgumentError) as also:
        env.get_images()
    for text in (str(refused.value), str(also.value)):
        assert said in text
    for text in (finding.reason, str(refused.value), str(also.value)):
        assert "rgb_array" not in text


def test_render_names_a_mode_that_there_is():
    for make, expected in (
        (Guests, "guests draws none"),
        (Text, r'for example build\(..., render_mode="ansi"\)'),
    ):
        with (
            vecwrap.build(make, n=1, backend="dummy") as env,
            pytest.raises(ArgumentError, match=expected),
        ):
            env.render()


# -- time_limit_in_frames --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "frames"),
    [
        ("PongNoFrameskip-v4 | time_limit:1000 | atari", "1,000 frames are 250 agent steps"),
        (
            "PongNoFrameskip-v4 | time_limit:1000 | atari:frame_skip=3",
            "1,000 frames are 334 agent steps",
        ),
        (
            "PongNoFrameskip-v4 | gymnasium.wrappers:TimeLimit:1000 | atari",
            "1,000 frames are 250 agent steps",
        ),
        ("CartPole-v1 | time_limit:100 | frame_skip:2", "100 frames are 50 agent steps"),
        (
            "CartPole-v1 | time_limit:100 | sticky_actions | frame_skip:2",
            "100 frames are 50 agent steps",
        ),
        (
            "CartPole-v1 | time_limit:100 | gymnasium.wrappers:MaxAndSkipObservation",
            "100 frames are 25 agent steps",
        ),
        ("PongNoFrameskip-v4 | atari | time_limit:1000", ""),
        ("PongNoFrameskip-v4 | time_limit:1000 | atari:frame_skip=1", ""),
        ("CartPole-v1 | frame_skip:2 | time_limit:100", ""),
        ("CartPole-v1 | time_limit:100", ""),
    ],
)
def test_a_time_limit_that_counts_frames(line, frames):
    found = check(line)
    assert [finding.id for finding in found] == ["time_limit_in_frames"] * bool(frames)
    for finding in found:
        assert frames in finding.reason
        assert finding.place.startswith("wrappers[0]")


def test_it_counts_as_the_finding_says():
    for line, steps in (("time_limit:7 | frame_skip:3", 3), ("frame_skip:3 | time_limit:7", 7)):
        with vecwrap.build(f"Pendulum-v1 n=1 | {line} | monitor") as env:
            env.reset(seed=1)
            infos = {}
            while "episode" not in infos:
                *_, infos = env.step(env.action_space.sample())
            assert infos["episode"]["l"][0] == steps


# -- time_aware_in_frames --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("CartPole-v1 | frame_skip:4 | time_aware", "1/4"),
        ("CartPole-v1 | frame_skip:3 | flatten | time_aware:normalize=true", "1/3"),
        ("CartPole-v1 | time_limit:100 | frame_skip:2 | time_aware", "1/2"),
        ("CartPole-v1 | gymnasium.wrappers:MaxAndSkipObservation | monitor | time_aware", "1/4"),
        ("CartPole-v1 | frame_skip:1 | time_aware", ""),
        ("CartPole-v1 | frame_skip:4 | time_aware:limit=125", ""),
        ("CartPole-v1 | frame_skip:2 | time_limit:100 | time_aware", ""),
        ("CartPole-v1 | time_aware", ""),
    ],
)
def test_a_time_that_ends_at_a_fraction(line, part):
    found = [finding for finding in check(line) if finding.id == "time_aware_in_frames"]
    assert len(found) == bool(part)
    for finding in found:
        assert part in finding.reason


def test_the_time_ends_where_the_finding_says():
    for line, end in (
        ("frame_skip:4 | time_aware:normalize=true,flatten=false", 1 / 4),
        ("frame_skip:4 | time_aware:normalize=true,flatten=false,limit=50", 1),
        ("frame_skip:4 | time_limit:20 | time_aware:normalize=true,flatten=false", 1),
    ):
        with vecwrap.build(f"Pendulum-v1 n=1 | {line}") as env:  # of 200 steps
            env.reset(seed=1)
            infos = {}
            while "final_obs" not in infos:
                *_, infos = env.step(env.action_space.sample())
            assert infos["final_obs"][0]["time"] == pytest.approx(end)


# -- time_limit_never_acts -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "settings", "steps"),
    [
        ("Pendulum-v1 | time_limit:1000", {}, "200"),
        ("Pendulum-v1 | frame_skip:4 | time_limit:51", {}, "200"),
        ("Pendulum-v1 | time_limit:1000", {"env_kwargs": {"max_episode_steps": 300}}, "300"),
        ("Pendulum-v1 | gymnasium.wrappers:TimeLimit:1000", {}, "200"),
        ("Pendulum-v1", {"wrappers": [partial(TimeLimit, max_episode_steps=1000)]}, "200"),
    ],
)
def test_a_limit_above_the_environments_own_never_acts(line, settings, steps):
    (finding,) = check(line, **settings)
    assert finding.id == "time_limit_never_acts"
    assert f"ends episodes after {steps}." in finding.reason
    assert "max_episode_steps" in finding.fix


def test_the_fix_of_a_limit_that_never_acts_is_the_limit_itself():
    (finding,) = check("Pendulum-v1 | time_limit:1000")
    assert "env_kwargs: {max_episode_steps: 1000}" in finding.fix
    assert check("Pendulum-v1", env_kwargs={"max_episode_steps": 1000}) == ()


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("PongNoFrameskip-v4 | time_limit:108001", "max_num_frames_per_episode: 108001"),
        ("PongNoFrameskip-v4 | atari | time_limit:27001", "max_num_frames_per_episode: 108004"),
        ("ALE/Pong-v5 | atari | time_limit:27001", "max_num_frames_per_episode: 108004"),
        ("ALE/Pong-v5 | time_limit:27001", "max_num_frames_per_episode: 108004"),
    ],
)
def test_a_limit_above_an_atari_games_own_frames(line, fix):
    pytest.importorskip("ale_py")
    (finding,) = check(line)
    assert finding.id == "time_limit_never_acts"
    assert finding.reason.endswith("ends episodes after 108,000 frames.")
    assert fix in finding.fix


@pytest.mark.parametrize(
    "line", ["PongNoFrameskip-v4 | atari | time_limit:27000", "ALE/Pong-v5 | time_limit:27000"]
)
def test_a_limit_at_an_atari_games_own_frames(line):
    pytest.importorskip("ale_py")
    assert check(line) == ()


@pytest.mark.parametrize(("outer", "found"), [(13, ['wrappers[2] "time_limit"']), (12, [])])
def test_the_larger_of_two_limits_never_acts_if_it_is_outside(outer, found):
    findings = check(f"Pendulum-v1 | time_limit:50 | frame_skip:4 | time_limit:{outer}")
    never = [finding for finding in findings if finding.id == "time_limit_never_acts"]
    assert [finding.where for finding in never] == found
    assert all(
        "time_limit (wrappers[0]) ends episodes before" in finding.reason for finding in never
    )


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("Pendulum-v1 | time_limit:200", {}),
        ("Pendulum-v1 | frame_skip:4 | time_limit:50", {}),
        ("Pendulum-v1 | time_limit:1000", {"env_kwargs": {"max_episode_steps": 2000}}),
        ("Pendulum-v1 | time_limit:1000", {"env_kwargs": {"max_episode_steps": -1}}),
        ("CartPole-v1 | time_limit:100", {}),
    ],
)
def test_a_limit_that_can_act(line, settings):
    assert check(line, **settings) == ()
