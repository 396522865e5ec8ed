"""Make the pictures of eight Pongs, from a real run: ``python docs/see.py``.

The clip stands in the README and on the start page, the still in seeing.md. Both show the wrapper
``tile``, with labels.
"""

from pathlib import Path

import imageio.v3
import numpy as np
from PIL import Image

import vecwrap

HERE = Path(__file__).resolve().parent
CLIP = HERE / "seeing-pongs.webp"
STILL = HERE / "seeing-tiles.png"
FIRST, SECONDS = 75, 6  # the clip leaves out the steps before the first serves
RATE = 15  # agent steps a second as a player sees them: 60 frames, 4 a step


def main() -> None:
    """Play until a game ends among eight; keep some seconds from near the beginning, and what is
    seen at the end.
    """
    wrappers = ["atari", {"tile": {"labels": True}}]
    frames = []
    with vecwrap.build(
        "PongNoFrameskip-v4", n=8, wrappers=wrappers, render_mode="rgb_array", seed=1
    ) as env:
        env.reset()
        env.action_space.seed(1)
        over, steps = False, 0
        while not over:
            *_, terminations, truncations, _ = env.step(env.action_space.sample())
            over, steps = bool((terminations | truncations).any()), steps + 1
            if FIRST <= steps < FIRST + SECONDS * RATE:
                frames.append(env.render())
        picture = env.render()
    lossless = {"lossless": True, "method": 6, "duration": 1000 / RATE, "loop": 0}
    imageio.v3.imwrite(CLIP, np.stack(frames), plugin="pillow", **lossless)
    Image.fromarray(picture).quantize(64, dither=Image.Dither.NONE).save(STILL, optimize=True)
    for path in (CLIP, STILL):
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
