"""Make the pictures of the page, from a real run of eight Pongs in a real browser: ``python
docs/page.py``.

They stand in seeing.md. Needs playwright and Debian's chromium.
"""

import io
import shutil
import threading
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import vecwrap

HERE = Path(__file__).resolve().parent
GAMES = 30  # that have ended in the pictures
WIDTHS = {
    "seeing-page.webp": (1400, 1110, "light", 2),
    "seeing-page-narrow.webp": (390, 1000, "dark", 2),
}


def shoot(browser: Browser, address: str) -> None:
    """Open the page in a wide and in a narrow window."""
    for name, (width, height, scheme, scale) in WIDTHS.items():
        tab = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            device_scale_factor=scale,
        )
        tab.goto(address)
        tab.wait_for_selector("#chart .scatterlayer", timeout=60_000)
        tab.wait_for_timeout(6_000)
        picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
        picture.thumbnail((1400, 1600) if width > 1000 else (585, 1500))
        picture.save(HERE / name, quality=82, method=6)
        print(f"{name}: {(HERE / name).stat().st_size / 1024:.0f} KiB")
        tab.close()


def main() -> None:
    """Play until enough games have ended, and go on while the pictures are taken."""
    spec = {
        "n": 8,
        "wrappers": ["atari", {"framestack": 4}, "monitor"],
        "backend": "shmem",
        "on_failure": "restart",
    }
    with vecwrap.build("PongNoFrameskip-v4", render_mode="rgb_array", seed=1, **spec) as env:
        address = vecwrap.watch(env)
        env.reset()
        env.action_space.seed(1)
        monitor = env.find(vecwrap.wrappers.monitor.Monitor)
        while monitor.num_episodes < GAMES:
            env.step(env.action_space.sample())

        def look() -> None:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox"]
                )
                shoot(browser, address)
                browser.close()

        looking = threading.Thread(target=look)
        looking.start()
        while looking.is_alive():
            env.step(env.action_space.sample())


if __name__ == "__main__":
    main()
