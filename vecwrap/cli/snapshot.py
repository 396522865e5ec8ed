"""The picture of all sub-environments that ``vecwrap run`` saves at its end."""

from pathlib import Path

import imageio.v3 as imageio
import numpy as np
from numpy.typing import NDArray

from vecwrap.env.atomic_files import write_atomically
from vecwrap.env.games import first_rows
from vecwrap.env.picture import MAX_PICTURE_PIXELS, game_labels, labelled
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import VecwrapError
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.factories import has_no_render_mode
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.recording.run_files import relative_to_cwd
from vecwrap.wrappers.tile import Tile

SUFFIXES = (".png", ".jpg", ".webp")


def save_picture(env: VecEnv, path: Path) -> str:
    """Write a picture of the sub-environments now; return the path, or why there is none."""
    if env.render_mode not in ("rgb_array", "human"):
        remedy = has_no_render_mode(env.metadata, env.core.env_id) or "a picture needs rgb_array"
        return f"none: the environment renders {env.render_mode or 'nothing'}, {remedy}"
    try:
        # try only one first: after a failure, OpenGL would end the process at the next attempt
        env.get_images(indices=0)
        image = _picture(env)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = imageio.imwrite("<bytes>", image, extension=path.suffix)
        write_atomically(path, lambda file: file.write(content))
    except (VecwrapError, OSError) as error:
        return f"none: {' '.join(str(error).split())}"
    return str(relative_to_cwd(path))


def _picture(env: VecEnv) -> NDArray[np.uint8]:
    """The picture of all sub-environments: as the pipeline draws it, or else with labels."""
    if any(isinstance(wrapper, Tile) for wrapper in env.chain):
        return env.picture()
    frames = env.get_images(first_rows(env.call_state, env.core))
    monitor = env.find(Monitor)
    if len(frames) != monitor.num_envs:  # games of several agents, say, each of which has a score
        numbers = [(f"#{i}",) for i in range(len(frames))]
        return labelled(frames, numbers, [False] * len(frames), MAX_PICTURE_PIXELS)
    scores, lengths, running = monitor.games
    # as the wrapper tile has it
    over = ~running | ((lengths == 0) & (env.core.autoreset is Autoreset.SAME_STEP))
    ended = {episode.env: episode for episode in monitor.recent if over[episode.env]}
    for i, episode in ended.items():
        scores[i], lengths[i] = episode[:2]
    is_over = [i in ended for i in range(len(frames))]
    return labelled(frames, game_labels(scores, lengths), is_over, MAX_PICTURE_PIXELS)
