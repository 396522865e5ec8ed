"""What names of other libraries are called here; read only where such a name was not found."""

# What people import, by the wrapper that does it here.
WRAPPER_HINTS = {
    "atari": "make_atari_env AtariWrapper AtariPreprocessing",
    "framestack:4": "VecFrameStack FrameStackObservation FrameStack",
    "monitor": "VecMonitor RecordEpisodeStatistics Monitor",
    "normalize": "VecNormalize",
    "normalize_obs": "NormalizeObservation VectorEnvNormObs",
    "normalize_reward": "NormalizeReward",
    "check_nan": "VecCheckNan",
    "transpose": "VecTransposeImage",
    "extract_obs:KEY": "VecExtractDictObs",
    "time_limit:1000": "TimeLimit",
    "clip_reward": "ClipReward ClipRewardEnv",
    "clip_action": "ClipAction",
    "rescale_action": "RescaleAction",
    "grayscale": "GrayscaleObservation GrayScaleObservation WarpFrame",
    "resize:84": "ResizeObservation",
    "flatten": "FlattenObservation",
    "frame_skip:4": "MaxAndSkipEnv MaxAndSkipObservation",
}
# What people import, other than wrappers: what is done here, and the names.
IMPORT_HINTS = {
    "vecwrap.build(id, n=1)": "make",
    "vecwrap.build(id, n=8)": "make_vec make_vec_env vector make_env",
    'vecwrap.build(id, n=8, backend="dummy")': "DummyVecEnv SyncVectorEnv DummyVectorEnv",
    'vecwrap.build(id, n=8, backend="subprocess")': "SubprocVecEnv AsyncVectorEnv SubprocVectorEnv",
    'vecwrap.build(id, n=8, backend="shmem")': "ShmemVecEnv ShmemVectorEnv",
    'vecwrap.build(id, n=8, backend="ray")': "RayVectorEnv",
    'vecwrap.build(id, n=8, wrappers=["video"], render_mode="rgb_array")': (
        "VecVideoRecorder RecordVideo"
    ),
    "vecwrap.evaluate(env, policy)": "evaluate_policy",
    "vecwrap.to_torch(env)": "NumpyToTorch ArrayConversion JaxToTorch",
    (
        "vecwrap.VecEnvWrapper for wrappers of the vector, gymnasium.Wrapper for those of one "
        "environment"
    ): "Wrapper",
    "gymnasium.Env, which vecwrap uses": "Env",
    "gymnasium.spaces, which vecwrap uses": "spaces",
    **{
        f'vecwrap.build(id, n=8, wrappers=["{wrapper}"])': names
        for wrapper, names in WRAPPER_HINTS.items()
    },
}
# Attributes of vector environments.
ATTRIBUTE_HINTS = {
    "reset(seed=...), or build(..., seed=...)": "seed",
    "num_envs": "n_envs nenvs num_env env_num",
    "chain, or find(...) for the wrapper of a class": "env venv",
    "get_attr(name), one value for each sub-environment": "get_wrapper_attr getattr",
    "set_attr(name, values)": "set_wrapper_attr setattr",
    "chain": "layers",
    "pipeline.wrappers and chain; vecwrap.to_sb3(env) has env_is_wrapped": "env_is_wrapped",
    "num_workers and health()": "remotes processes ps parent_pipes",
    "find(vecwrap.VecEnvWrapper).wrapper_statistics(), of the wrapper's class": "obs_rms ret_rms",
    "the second value that reset returns": "reset_infos buf_infos",
    "spec.max_episode_steps": "max_episode_steps",
    "vecwrap.watch(env)": "watch",
}
# Keys of pipelines, and arguments of what builds vector environments.
KEY_HINTS = {
    "The number of sub-environments is called n": (
        "num num_env num_envs n_env n_envs nenv nenvs env_num number count"
    ),
    "How the sub-environments run is called backend": "vec_env_cls vectorization_mode",
    "Scores are written by a wrapper: wrappers: [{monitor: {dir: ...}}]": "monitor_dir",
    "The environment is called env": "id env_id environment env_name",
    "What wraps the environment is called wrappers": "layers pipeline chain",
    "The file that this one builds upon is called extends": "base extend defaults include",
    "A pipeline file builds upon another one, and says so at its top": "extends",
    "An evaluation with other wrappers lists them all in eval.wrappers": "add drop",
    "What differs in an evaluation is called eval": "evaluation test",
    "YAML 1.2 has no merge keys; a file builds upon another one with extends": "<<",
    "Gymnasium no longer has it; docs/migrating.md wraps the old Gym API": (
        "apply_api_compatibility"
    ),
    (
        'It is not part of a pipeline: give it to vecwrap.build or load, as in out="runs/a", or to '
        "vecwrap run --out"
    ): ("out config"),
    (
        "Tensors are not part of a pipeline: vecwrap.to_torch(env, device=...) converts what was "
        "built"
    ): "device framework to_torch torch",
    "Did you mean autoreset or render_mode?": "mode",
    "Bounds that differ between sub-environments are joined without being asked": (
        "observation_mode"
    ),
    "Did you mean env_kwargs?": "kwargs",
}


def hint(table: dict[str, str], name: str) -> str:
    """Return what a name is called here; "" if it is unknown.

    >>> hint(KEY_HINTS, "num_envs")
    'The number of sub-environments is called n'
    """
    return next((here for here, names in table.items() if name in names.split()), "")
