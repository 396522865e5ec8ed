"""The wrappers of this package, one file each; the file has the name that pipelines use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vecwrap.wrappers import atari as atari
    from vecwrap.wrappers import check_nan as check_nan
    from vecwrap.wrappers import clip_action as clip_action
    from vecwrap.wrappers import clip_reward as clip_reward
    from vecwrap.wrappers import dtype as dtype
    from vecwrap.wrappers import episodic_life as episodic_life
    from vecwrap.wrappers import extract_obs as extract_obs
    from vecwrap.wrappers import filter_obs as filter_obs
    from vecwrap.wrappers import fire_reset as fire_reset
    from vecwrap.wrappers import flatten as flatten
    from vecwrap.wrappers import frame_skip as frame_skip
    from vecwrap.wrappers import framestack as framestack
    from vecwrap.wrappers import grayscale as grayscale
    from vecwrap.wrappers import monitor as monitor
    from vecwrap.wrappers import noop_reset as noop_reset
    from vecwrap.wrappers import normalize as normalize
    from vecwrap.wrappers import normalize_obs as normalize_obs
    from vecwrap.wrappers import normalize_reward as normalize_reward
    from vecwrap.wrappers import presets as presets
    from vecwrap.wrappers import record_trajectories as record_trajectories
    from vecwrap.wrappers import rescale_action as rescale_action
    from vecwrap.wrappers import resize as resize
    from vecwrap.wrappers import scale_obs as scale_obs
    from vecwrap.wrappers import scale_reward as scale_reward
    from vecwrap.wrappers import seed_each_episode as seed_each_episode
    from vecwrap.wrappers import sticky_actions as sticky_actions
    from vecwrap.wrappers import terminal_obs as terminal_obs
    from vecwrap.wrappers import tile as tile
    from vecwrap.wrappers import time_aware as time_aware
    from vecwrap.wrappers import transpose as transpose
    from vecwrap.wrappers import video as video

if not TYPE_CHECKING:  # so that type checkers refuse names that are not there

    def __getattr__(name: str) -> Any:
        """Import a wrapper's module on first access, as in ``vecwrap.wrappers.monitor.Monitor``."""
        path = f"{__name__}.{name}"
        try:
            return import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:
                raise  # the module is there, and needs a package that is not
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; see `vecwrap list`")
