"""Warning filters in workers: they hold there, but nothing is imported for them."""

import subprocess
import sys
import textwrap

SCRIPT = """
    import sys, warnings
    import gymnasium
    import vecwrap

    class Warning_(gymnasium.Wrapper):
        def step(self, action):
            warnings.warn("from the step")
            return self.env.step(action)

        def loaded(self, module):
            return module in sys.modules

    {body}
    with vecwrap.build("CartPole-v1", 2, [Warning_], backend="subprocess", workers=2) as env:
        env.reset(seed=0)
        {rest}
"""


def run(script, **parts):
    code = textwrap.dedent(script).format(**parts)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stderr
    return result.stderr


def test_a_filter_for_a_category_of_python_s_holds_in_workers():
    assert "from the step" in run(SCRIPT, body="", rest="env.step([0, 0])")
    ignored = "warnings.filterwarnings('ignore', category=UserWarning)"
    assert "from the step" not in run(SCRIPT, body=ignored, rest="env.step([0, 0])")


def test_what_filters_only_name_is_not_imported():
    """As torch, which filters a warning of its own."""
    body = "from tests.backends.later_imported import Loud; warnings.simplefilter('ignore', Loud)"
    run(SCRIPT, body=body, rest="assert env.call('loaded', 'tests.backends.later_imported') == (False, False)")
