"""Packages that register environments on import: their ids' prefixes and how to install them."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pkgutil import iter_modules

from vecwrap.errors import is_installed

# (how an id begins, the module that registers it, what pip installs)
_PACKAGES = (
    (r"MiniGrid-|BabyAI-", "minigrid", "minigrid"),
    (r"MiniWorld-", "miniworld", "miniworld"),
    (
        r"Fetch|Hand(Reach|Manipulate)|AntMaze|PointMaze|AdroitHand|FrankaKitchen",
        "gymnasium_robotics",
        "",
    ),
    (
        r"(highway|merge|roundabout|parking|intersection|racetrack|exit|two-way|u-turn)(-\w+)?-v",
        "highway_env",
        "",
    ),
    (r"Meta-World/", "metaworld", "metaworld"),
    (r"dm_control/|bsuite/", "shimmy", '"shimmy[dm-control,bsuite]"'),
    (r"mo-", "mo_gymnasium", ""),
    (r"Safety(Point|Car|Ant|Doggo|Racecar)", "safety_gymnasium", ""),
    (r"FlappyBird", "flappy_bird_gymnasium", ""),
    (r"Vizdoom", "vizdoom.gymnasium_wrapper", "vizdoom"),
    (r"NetHack", "nle", "nle"),
    (r"MiniHack", "minihack", "minihack"),
    (r"Panda", "panda_gym", ""),
    (r"PyFlyt/", "PyFlyt.gym_envs", "PyFlyt"),
    (r"\w+BulletEnv-v", "pybullet_envs_gymnasium", ""),
    (r"gym_pusht/", "gym_pusht", ""),
    (r"gym_aloha/", "gym_aloha", ""),
)
_OLD_PREFIXES = {
    "procgen": r"procgen-",
    "gym_super_mario_bros": "SuperMarioBros",
    "d4rl": r"(maze2d|antmaze|kitchen)-",
    "gym": "",
}


def package_hint(env_id: str) -> str:
    """What to write instead of an unknown id that a well-known package registers, or ``""``."""
    for module, old in _OLD_PREFIXES.items():
        if old and re.match(old, env_id):
            return f" It is of {module}, for the package gym: wrap it as docs/migrating.md shows."
    for begins, module, _ in _PACKAGES:
        if re.match(begins, env_id):
            stem, _, version = env_id.rpartition("-v")
            newest = ""
            if stem and version.isdigit():
                newest = f', or "{module}:{stem}" for its newest version'
            return f' {install_hint(module)}Write "{module}:{env_id}"{newest}.'
    return ""


# How the particle games were named while they were PettingZoo's, as an id and as modules; and
# without either.
_PARTICLES = re.compile(
    r"(?:(?:pettingzoo[:.])?mpe[/.:]|pettingzoo:)"
    r"(simple\w*?|collect_treasure)(?:[-_]v(\d+))?(?:[:.]\w+)?"
)


def moved_games(env: str) -> str:
    """What to write instead of one of PettingZoo's former particle games, or ``""``."""
    found = _PARTICLES.fullmatch(env)
    if found is None:
        return ""
    package = find_spec("mpe2")  # which is not imported
    installed = []
    if package:
        installed = [module.name for module in iter_modules(package.submodule_search_locations)]
    there = [name for name in installed if name.rpartition("_v")[0] == found[1]]
    asked = f"{found[1]}_v{found[2] or 3}"
    module = asked
    if asked not in there:
        module = max(there, default=asked)
    return (
        "PettingZoo's particle games (mpe) are a package of their own now, mpe2. "
        f"{'' if installed else 'It needs mpe2: pip install mpe2. '}Write "
        f'"mpe2.{module}:parallel_env".'
    )


def install_hint(module: str) -> str:
    """``"It needs minigrid: pip install minigrid. "``, if a well-known module is not installed."""
    names = {known: pip or known.replace("_", "-") for _, known, pip in _PACKAGES} | {
        old: old for old in _OLD_PREFIXES
    }
    top = module.partition(".")[0]
    if module not in names or is_installed(top):
        return ""
    return f"It needs {top.replace('_', '-')}: pip install {names[module]}. "
