r"""Learning curves from monitor files: read, smoothed, drawn. For ``vecwrap plot`` and scripts.

Reading and smoothing need only NumPy; matplotlib (extra ``plot``) is imported when a picture is drawn.

Example:
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp()) / "mine"
    >>> folder.mkdir()
    >>> header, rows = '#{"t_start": 1.0, "env_id": "CartPole-v1"}', "1.0,10,0.5\n3.0,30,1.5\n"
    >>> _ = (folder / "monitor.csv").write_text(f"{header}\nr,l,t\n{rows}")
    >>> (run,) = read_runs([folder])
    >>> (seed,) = run.seeds
    >>> run.name, seed.scores.tolist(), seed.steps.tolist()
    ('mine', [1.0, 3.0], [10, 40])
    >>> curve(run, "steps", window=2).mean.tolist()
    [2.0]
"""

from vecwrap.plotting.curves import AXES, Curve, curve, draw, save
from vecwrap.plotting.runs import Run, Seed, read_runs

__all__ = ["AXES", "Curve", "Run", "Seed", "curve", "draw", "read_runs", "save"]
