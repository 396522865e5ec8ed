"""What is sent to workers: it loads nothing there that only plans need."""

import sys

import gymnasium

import vecwrap

SUBPROCESS = {"name": "subprocess", "start_method": "fresh"}


class Modules(gymnasium.Wrapper):
    """Says what its process has loaded."""

    def modules(self):
        return [name for name in sys.modules if name.startswith("vecwrap.")]


def test_a_worker_loads_the_three_lowest_floors_and_its_own_loop():
    with vecwrap.build(
        "CartPole-v1", n=1, wrappers=[Modules, "time_limit:5"], backend=SUBPROCESS
    ) as env:
        (modules,) = env.call("modules")
    floors = {name.split(".")[1] for name in modules}
    assert floors == {"backends", "errors", "interrupts", "rows", "sources"}
    loop = {name.rpartition(".")[2] for name in modules if name.startswith("vecwrap.backends.")}
    assert loop == {"workers", "worker", "messages", "step_ring", "cores"}
