"""The examples run as they are, as plain scripts, and say something."""

import functools
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

import vecwrap
from vecwrap.cli import main

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
TRAINING = ["ppo.py", "a2c.py"]  # too long to run as they are; they run shortened, below
LONG = [*TRAINING, "selfplay.py", "server_env.py"]  # the last is in tests/recipes


def run(name, *arguments, cwd, typed=""):
    """Run an example as a script whose warnings are errors; give what it printed."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *map(str, arguments)]
    # Or SDL complains that there is no screen.
    environment = {
        **os.environ,
        "SDL_VIDEODRIVER": "dummy",
    }
    result = subprocess.run(
        command, cwd=cwd, input=typed, capture_output=True, text=True, timeout=240, env=environment
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.strip()
    assert result.stderr == ""
    return result.stdout


def imported(name):
    specification = importlib.util.spec_from_file_location(
        name.removesuffix(".py"), EXAMPLES / name
    )
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "script", [pytest.param(path, id=path.name) for path in SCRIPTS if path.name not in LONG]
)
@pytest.mark.full
def test_a_script_runs_and_prints(script, tmp_path):
    run(script.name, cwd=tmp_path)


def test_the_first_lines_of_a_script_say_what_it_shows():
    for script in SCRIPTS:
        assert script.read_text(encoding="utf-8").startswith('"""')


@pytest.mark.parametrize("mode", [[], ["--eval"]])
def test_every_pipeline_file_is_without_mistakes_also_for_its_evaluation(mode, capsys):
    pytest.importorskip("ale_py")
    there = importlib.util.find_spec("ray")
    files = {
        path.name: str(path)
        for path in sorted(EXAMPLES.glob("*.yaml"))
        if there or path.name != "ray.yaml"
    }
    game = files.pop("spread.yaml")  # whose env is an import path
    for checked in [["--no-imports", *files.values()]] + [[game]] * (
        importlib.util.find_spec("mpe2") is not None
    ):
        assert main(["check", "--strict", *checked, *mode]) == 0, capsys.readouterr()


def test_pong_from_the_file(tmp_path):
    pytest.importorskip("ale_py")
    command = [sys.executable, "-m", "vecwrap", "run", str(EXAMPLES / "pong.yaml")]
    command += ["--steps", "400", "--out", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "400" in result.stdout
    header = json.loads(
        (tmp_path / "monitor.csv").read_text(encoding="utf-8").splitlines()[0].removeprefix("#")
    )
    assert (header["env_id"], header["step_unit"], header["frame_skip"]) == (
        "PongNoFrameskip-v4",
        "agent step",
        4,
    )
    import imageio.v3 as imageio

    # With labels and lines.
    assert imageio.imread(tmp_path / "tiles.png").shape == (
        2 * 228 + 9,
        4 * 163 + 3,
        3,
    )


# -- training loops --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRAINING)
@pytest.mark.full
def test_training_saves_evaluates_films_and_draws_and_can_be_played_again(name, tmp_path):
    for package in ("torch", "matplotlib", "pygame"):
        pytest.importorskip(package)
    import imageio.v3 as imageio

    out = tmp_path / "runs" / name.removesuffix(".py")
    trained = run(name, "--steps", 1024, "--episodes", 4, "--seed", 3, cwd=tmp_path)
    played = run(name, "--play", "--episodes", 4, "--seed", 3, cwd=tmp_path)
    files = {path.name for path in out.iterdir()}
    assert {
        "agent.pt",
        "statistics.npz",
        "score.png",
        "monitor.csv",
        "play-episode-000000.mp4",
        "eval",
    } <= files
    result = [line for line in trained.splitlines() if line.startswith("evaluation: 4 episodes")]
    assert result
    assert result[0] in played, "the model or its statistics are not those that were trained"
    assert imageio.imread(out / "score.png").shape[0] > 300
    video = cv2.VideoCapture(str(out / "play-episode-000000.mp4"))
    (_, opening), (_, later) = video.read(), [video.read() for _ in range(5)][-1]
    video.release()
    assert opening.shape == (800, 1200, 3)
    assert (later != opening).any()
    assert len((out / "monitor.csv").read_text().splitlines()) > 20


@pytest.mark.full
def test_ppo_trains_one_policy_for_all_agents_of_a_game_with_another_pipeline_alone(tmp_path):
    for package in ("torch", "matplotlib", "pygame", "mpe2"):
        pytest.importorskip(package)
    arguments = [
        "--pipeline",
        EXAMPLES / "spread.yaml",
        "--steps",
        3500,
        "--target",
        0,
        "--episodes",
        12,
    ]
    trained = run("ppo.py", *arguments, "--out", "runs/spread", cwd=tmp_path)
    assert "n=24" in trained
    assert "evaluation: 12 episodes" in trained
    header, *lines = (tmp_path / "runs" / "spread" / "monitor.csv").read_text().splitlines()[1:]
    agents = [line.split(",")[header.split(",").index("agent")] for line in lines]
    assert sorted(set(agents)) == ["agent_0", "agent_1", "agent_2"]
    assert agents.count("agent_0") == agents.count("agent_2") > 20


@pytest.mark.full
def test_a2c_draws_a_row_for_each_n(tmp_path, monkeypatch, capsys):
    for package in ("torch", "matplotlib"):
        pytest.importorskip(package)
    import imageio.v3 as imageio

    a2c = imported("a2c.py")
    monkeypatch.setattr(
        sys, "argv", ["a2c.py", "--n", "2,3", "--steps", "600", "--out", str(tmp_path / "study")]
    )
    a2c.main()
    said = capsys.readouterr().out
    assert "n=2," in said
    assert "n=3," in said
    assert sorted(path.name for path in (tmp_path / "study").iterdir()) == [
        "n-02",
        "n-03",
        "scaling.png",
    ]
    assert imageio.imread(tmp_path / "study" / "scaling.png").shape[1] > 1000
    figure = a2c.draw_study(tmp_path / "study", [2, 3])
    labels = [(panel.get_ylabel(), panel.get_xlabel()) for panel in figure.axes]
    assert [row for row, _ in labels if row] == ["n = 2\nscore", "n = 3\nscore"]
    assert [column for _, column in labels if column] == ["agent steps", "episodes", "minutes"]
    scores = np.loadtxt(tmp_path / "study" / "n-02" / "monitor.csv", delimiter=",", skiprows=2)[
        :, 0
    ]
    raw, smoothed = figure.axes[1].lines[:2]  # n = 2 over episodes
    np.testing.assert_allclose(raw.get_ydata(), scores)
    np.testing.assert_allclose(smoothed.get_ydata(), np.convolve(scores, np.full(10, 0.1), "valid"))


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """Train with examples/a2c.py, n=2; let something happen in the midst of one of the updates."""
    for package in ("torch", "matplotlib", "ale_py"):
        pytest.importorskip(package)
    import torch

    a2c = imported("a2c.py")
    update = a2c.update
    monkeypatch.setattr(a2c, "SAVE_SECONDS", 0.0)

    def train(pipeline, out, updates, *options, at=None, happens=None):
        done = []

        def counted(*arguments):
            update(*arguments)
            done.append(None)
            if len(done) == at:
                happens()

        file = str(EXAMPLES / f"{pipeline}.yaml")
        command = ["a2c.py", "--pipeline", file, "--n", "2", "--steps", str(10 * updates)]
        monkeypatch.setattr(sys, "argv", [*command, "--out", str(tmp_path / out), *options])
        monkeypatch.setattr(a2c, "update", counted)
        a2c.main()
        folder = tmp_path / out / "n-02"
        rows = (folder / "monitor.csv").read_text().splitlines()[2:]
        games = [row.split(",")[:2] + row.split(",")[3:] for row in rows]  # but for the times
        return torch.load(folder / "training.pt", weights_only=True), games

    return train


def crash():
    raise RuntimeError("the machine has crashed")


ENDINGS = {
    "signal": (lambda: signal.raise_signal(signal.SIGTERM), SystemExit),
    "crash": (crash, RuntimeError),
}


@pytest.mark.full
@pytest.mark.parametrize("ending", ENDINGS)
def test_a2c_that_was_stopped_goes_on_as_if_it_had_not_been(ending, stopped):
    import torch

    happens, raised = ENDINGS[ending]
    expected, _ = stopped("pong", "whole", 6)
    with pytest.raises(raised):
        stopped("pong", "parts", 6, at=3, happens=happens)
    got, _ = stopped("pong", "parts", 6, "--resume")
    assert got["updates"] == expected["updates"] == 6
    for name, weight in expected["agent"].items():
        assert torch.equal(got["agent"][name], weight), name


def test_a2c_goes_on_with_new_games_where_games_cannot_be_saved(stopped):
    happens, raised = ENDINGS["crash"]
    with pytest.raises(raised):
        stopped("cartpole", "parts", 40, at=20, happens=happens)
    got, games = stopped("cartpole", "parts", 40, "--resume")
    assert got["updates"] == 40
    assert got["steps"] == 400
    steps = [int(row[-1]) for row in games]
    assert steps == sorted(steps)
    assert steps[0] < 200 < steps[-1] <= 400


def test_a2c_leaves_out_games_that_are_played_again_and_the_time_it_did_not_run(tmp_path):
    pytest.importorskip("torch")
    a2c = imported("a2c.py")
    path = tmp_path / "monitor.csv"
    lines = ['#{"t_start": 100.0, "env_id": "x"}', "r,l,t,env,lost,steps", "1.0,5,2.5,0,0,10"]
    path.write_text("\n".join([*lines, "2.0,5,3.5,1,0,20\n"]))
    a2c.cut_back(path, 10, 7.0)
    lines[0] = '#{"t_start": 107.0, "env_id": "x"}'
    assert path.read_text() == "\n".join(lines) + "\n"


@pytest.mark.full
def test_a2c_studies_pong_though_no_game_ends(tmp_path):
    for package in ("ale_py", "torch", "matplotlib"):
        pytest.importorskip(package)
    said = run(
        "a2c.py", "--pipeline", EXAMPLES / "pong.yaml", "--n", "2", "--steps", 50, cwd=tmp_path
    )
    assert "50 steps" in said
    assert (tmp_path / "runs" / "a2c" / "scaling.png").exists()


# -- self-play -------------------------------------------------------------------------------------


def needs_games():
    for package in ("torch", "matplotlib", "pettingzoo"):
        pytest.importorskip(package)


@pytest.fixture
def selfplay(monkeypatch):
    needs_games()
    monkeypatch.syspath_prepend(EXAMPLES)  # where the pool finds make
    yield imported("selfplay.py")
    sys.modules.pop("selfplay", None)


def losses(said):
    """The last exam that was printed: the shares of games that it loses to random moves, from each
    seat, in percent.
    """
    (first, second) = re.findall(r"loses to random moves: ([\d.]+)% .* ([\d.]+)%", said)[-1]
    return float(first), float(second)


@pytest.mark.full
def test_selfplay_learns_tictactoe_rates_its_snapshots_and_can_be_played_against(tmp_path):
    needs_games()
    said = run("selfplay.py", "--steps", 20_480, cwd=tmp_path)
    assert np.mean(losses(said)) < 20, "random moves lose 44 % of their games to random moves"
    out = tmp_path / "runs" / "selfplay-tictactoe"
    assert {path.name for path in out.iterdir()} == {"agent.npz", "pool", "tournament"}
    assert len((out / "tournament" / "ratings.csv").read_text().splitlines()) >= 3
    assert "20,480 steps" in said
    pool = json.loads((out / "pool" / "pool.json").read_text(encoding="utf-8"))
    assert pool["make"] == "selfplay:make"

    moves = "".join(f"{move}\n" for move in [*range(9)] * 9)
    played = run("selfplay.py", "--play", cwd=tmp_path, typed=f"9\nno\n{moves}")
    assert played.count("expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8") == 2
    assert "0 1 2\n3 4 5\n6 7 8\n" in played
    assert "you are X and begin" in played
    assert "you are X and move second" in played
    assert re.search(r"you have won|you have lost|a draw", played)


@pytest.mark.full
def test_selfplay_plays_connect_four_against_a_careful_player(tmp_path):
    needs_games()
    few = ("--steps", 4096, "--episodes", 20, "--seed", 2)
    said = run("selfplay.py", "--game", "connect_four", *few, cwd=tmp_path)
    assert "against a careful player: won" in said
    assert (tmp_path / "runs" / "selfplay-connect_four" / "tournament" / "games.png").exists()
    played = run("selfplay.py", "--game", "connect_four", "--play", cwd=tmp_path, typed="3\n")
    assert "X . . .\n0 1 2 3 4 5 6\n" in played


def test_playing_against_selfplay_ends_quietly_with_ctrl_c(selfplay, monkeypatch, capsys):
    def interrupted(prompt):
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupted)
    game = selfplay.GAMES["tictactoe"]
    selfplay.play(game, selfplay.Agent(game))
    assert capsys.readouterr().out.endswith("6 7 8\n\n")


def rollout_of(selfplay, agent, game, steps=30):
    """What `train` collects."""
    rng = np.random.default_rng(3)
    with selfplay.games(game, ["random"], n=4) as env:
        env.reset(seed=1)

        def policy(observations, *, action_masks):
            return agent.act(observations, action_masks=action_masks, rng=rng)

        return next(vecwrap.rollouts(env, policy, steps, reset=False))


def an_agent(selfplay, title, seed=4):
    """An agent whose moves depend on the board, unlike those of one that has not learnt yet."""
    import torch

    torch.manual_seed(seed)
    agent = selfplay.Agent(selfplay.GAMES[title])
    torch.nn.init.normal_(agent.actor.weight, std=4)
    return agent


def test_the_mirror_image_of_connect_four_is_the_game_in_which_mirrored_moves_are_played(selfplay):
    game, rng = selfplay.GAMES["connect_four"], np.random.default_rng(3)
    env, other = (
        vecwrap.build(game.env, n=4, wrappers=selfplay.WRAPPERS, backend="dummy") for _ in range(2)
    )
    observations, masks = env.reset(seed=1)[0], env.action_masks()
    seen, legal = other.reset(seed=1)[0], other.action_masks()
    for _ in range(40):
        np.testing.assert_array_equal(observations[..., ::-1], seen)
        np.testing.assert_array_equal(masks[:, ::-1], legal)
        actions = (rng.random(masks.shape) * masks).argmax(1)
        observations, rewards, *_ = env.step(actions)
        seen, others, *_ = other.step(6 - actions)
        np.testing.assert_array_equal(rewards, others)
        masks, legal = env.action_masks(), other.action_masks()
    assert game.mirror
    assert rewards.shape == (8,)


def test_a_mirrored_move_of_connect_four_has_the_probability_with_which_the_move_was_drawn(
    selfplay,
):
    game, agent = selfplay.GAMES["connect_four"], an_agent(selfplay, "connect_four")
    rollout = rollout_of(selfplay, agent, game)
    columns = (rollout.observations[:-1], rollout.extras["masks"], rollout.actions)
    observations, masks, actions = map(np.concatenate, columns)
    distribution, values = agent(observations, masks)
    mirrored, same_values = agent(observations[..., ::-1].copy(), masks[:, ::-1].copy())
    drawn = distribution.probs.detach().numpy()[np.arange(len(actions)), actions]
    np.testing.assert_allclose(
        mirrored.probs.detach().numpy()[np.arange(len(actions)), 6 - actions], drawn, rtol=1e-4
    )
    np.testing.assert_allclose(same_values.detach(), values.detach(), atol=1e-5)
    assert drawn.std() > 0.1, "the moves do not depend on the board"
    other = an_agent(selfplay, "connect_four")
    other.mirror = False
    one, two = (
        other(observations, masks)[0].probs,
        other(observations[..., ::-1].copy(), masks[:, ::-1].copy())[0].probs,
    )
    assert (one - two.flip(-1)).abs().max() > 0.1, "this net is symmetric without help"


@pytest.mark.parametrize(
    "title", ["connect_four", pytest.param("tictactoe", marks=pytest.mark.full)]
)
def test_ppo_learns_from_the_moves_that_were_drawn_and_compares_with_their_probabilities(
    selfplay, monkeypatch, title
):
    """Mirrored moves, drawn for other boards, were among them: their probabilities sank without
    end, and became NaN.
    """
    torch, game, agent = selfplay.torch, selfplay.GAMES[title], an_agent(selfplay, title)
    rollout = rollout_of(selfplay, agent, game)
    columns = (rollout.observations[:-1], rollout.extras["masks"], rollout.actions)
    drawn = [
        agent(seen, legal)[0].probs.detach().numpy()[range(4), actions]
        for seen, legal, actions in zip(*columns, strict=True)
    ]
    learnt, ratios, log_prob, exp = [], [], selfplay.Categorical.log_prob, torch.Tensor.exp
    monkeypatch.setattr(
        selfplay.Categorical, "log_prob", lambda *a: learnt.append(log_prob(*a)) or learnt[-1]
    )
    monkeypatch.setattr(torch.Tensor, "exp", lambda x: ratios.append(exp(x)) or ratios[-1])
    monkeypatch.setattr(selfplay, "MINIBATCHES", 1)
    selfplay.update(agent, torch.optim.SGD(agent.parameters(), lr=0.0), rollout, game)
    assert len(learnt) == len(ratios) == game.epochs
    np.testing.assert_allclose(
        np.sort(learnt[0].detach()), np.sort(np.log(drawn), axis=None), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(ratios[0].detach(), 1, rtol=1e-3)


@pytest.mark.parametrize("broken", ["rewards", "weights"])
def test_training_that_diverges_ends_with_a_message_and_keeps_the_weights(selfplay, broken):
    game, agent = selfplay.GAMES["connect_four"], an_agent(selfplay, "connect_four")
    rollout = rollout_of(selfplay, agent, game, steps=8)
    if broken == "rewards":
        rollout.rewards[3] = np.nan
    else:
        agent.actor.weight.data[0, 0] = np.nan
    before = {name: tensor.clone() for name, tensor in agent.state_dict().items()}
    with pytest.raises(
        FloatingPointError, match=r"expected a finite gradient, got (nan|inf): lower LEARNING_RATE"
    ):
        selfplay.update(agent, selfplay.torch.optim.Adam(agent.parameters()), rollout, game)
    for name, tensor in agent.state_dict().items():
        np.testing.assert_array_equal(tensor, before[name])


def any_move(observations, *, action_masks):
    """Some legal move that depends on the whole board."""
    weights = np.random.default_rng(5).normal(size=(18, 9))
    return np.where(
        action_masks, observations.reshape(-1, 18) @ weights + weights[0], -np.inf
    ).argmax(1)


def test_the_exam_of_tictactoe_says_how_often_real_games_are_lost(selfplay):
    game, expected, number = selfplay.GAMES["tictactoe"], selfplay.exam(any_move), 1000
    for seat, probability in zip(game.seats, expected, strict=True):
        with selfplay.games(game, ["random"], n=100, seat=seat) as env:
            returns = vecwrap.evaluate(env, any_move, number, seed=1, progress=False).returns
        error = np.sqrt(probability * (1 - probability) / number)
        assert 0.1 < probability < 0.9
        assert abs(np.mean(returns < 0) - probability) < 4 * error


def test_the_exam_of_tictactoe_is_passed_by_perfect_play_alone(selfplay):
    @functools.cache
    def value(board):
        """What the player to move, 1, can reach at least: a naive minimax."""
        lines = [
            (0, 1, 2),
            (3, 4, 5),
            (6, 7, 8),
            (0, 3, 6),
            (1, 4, 7),
            (2, 5, 8),
            (0, 4, 8),
            (2, 4, 6),
        ]
        if any(board[a] == board[b] == board[c] == -1 for a, b, c in lines):
            return -1
        return max((-value(after(board, i)) for i in range(9) if not board[i]), default=0)

    def after(board, i):
        return tuple(-1 if k == i else -cell for k, cell in enumerate(board))

    def perfect(observations, *, action_masks, spoilt=None):
        own, others = observations.astype(int).reshape(-1, 2, 9).swapaxes(0, 1)
        boards = [tuple(board) for board in (own - others).tolist()]
        moves = [
            max(np.flatnonzero(m), key=lambda i: -value(after(b, i)))
            for b, m in zip(boards, action_masks, strict=True)
        ]
        for k, board in enumerate(boards):
            if board == spoilt:
                moves[k] = min(
                    np.flatnonzero(action_masks[k]), key=lambda i: -value(after(board, i))
                )
        return np.array(moves)

    assert selfplay.exam(perfect) == (0, 0)
    opening = (-1, 0, 0, 0, 0, 0, 0, 0, 0)
    first, second = selfplay.exam(functools.partial(perfect, spoilt=opening))  # answered at an edge
    assert first == 0
    assert 0 < second < 1 / 9


def test_the_careful_player_of_connect_four_takes_a_win_and_prevents_one(selfplay):
    from pettingzoo.classic.connect_four.connect_four import raw_env

    rng = np.random.default_rng(3)
    game, won, prevented = raw_env(), 0, 0
    for _ in range(30):
        game.reset()
        for agent in game.agent_iter():
            seen, _, terminated, _, _ = game.last()
            if terminated:
                break
            masks = seen["action_mask"].astype(bool)[None]
            choice = int(
                selfplay.careful(
                    seen["observation"].transpose(2, 0, 1)[None], action_masks=masks, rng=rng
                )[0]
            )
            assert masks[0, choice]
            mine = [column for column in np.flatnonzero(masks[0]) if wins(game, column, agent)]
            theirs = [
                column
                for column in np.flatnonzero(masks[0])
                if wins(game, column, other(game, agent))
            ]
            if mine:
                assert choice in mine
                won += 1
            elif theirs:
                assert choice in theirs
                prevented += 1
            game.step(int(rng.choice(np.flatnonzero(masks[0]))))
    assert won > 10
    assert prevented > 10


def other(game, agent):
    return next(name for name in game.possible_agents if name != agent)


def wins(game, column, agent):
    """Whether a piece of an agent in a column makes four in a row."""
    tried = type(game)()
    tried.reset()
    tried.board, tried.agent_selection = list(game.board), agent
    tried.step(int(column))
    return tried.terminations[agent] and 0 in tried.board
