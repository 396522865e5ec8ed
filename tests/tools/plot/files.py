"""Monitor files as tests need them."""

import csv
import json


def write_file(path, rows, t_start=1000.0, columns=("r", "l", "t", "env", "lost"), **header):
    """Write a monitor file of ours, or of whatever columns and header; give its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        file.write(f"#{json.dumps({'t_start': t_start, 'env_id': 'Toy-v0', **header})}\n")
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(columns)
        lines.writerows(rows)
    return path


def random_rows(rng, count, envs=3):
    """Give rows of a run, in the order of their ends."""
    ends = rng.exponential(1.0, count).cumsum().round(6)
    scores = rng.normal(size=count).round(3) + rng.integers(-5, 6, count)
    return [
        (float(score), int(length), float(end), int(env), 0)
        for score, length, end, env in zip(
            scores, rng.integers(1, 50, count), ends, rng.integers(0, envs, count), strict=True
        )
    ]
