"""Warning filters in workers: they hold there, and nothing is imported for them."""

import subprocess
import sys
import textwrap
import warnings

import pytest

from vecwrap.backends.workers.messages import filter_names, set_filters

SCRIPT = """
    import sys, warnings
    import gymnasium
    import vecwrap

    class Mine(UserWarning):
        pass

    class Warning_(gymnasium.Wrapper):
        def step(self, action):
            warnings.warn("from the step", Mine)
            return self.env.step(action)

        def loaded(self, module):
            return module in sys.modules

    {body}
    with vecwrap.build("CartPole-v1", 2, [Warning_], backend="subprocess", workers=2) as env:
        env.reset(seed=0)
        {rest}
"""


LATER = """
    import warnings
    import gymnasium
    import vecwrap
    from tests.backends import later_imported

    warnings.filterwarnings("error", category=later_imported.Loud)
    gymnasium.register("Shouting-v0", "tests.backends.later_imported:Shouting")
    with vecwrap.build("Shouting-v0", 1, backend="subprocess") as env:
        env.reset()
        try:
            env.step([0])
        except vecwrap.SubEnvError as error:
            assert "raised Loud in step" in str(error)
        else:
            raise AssertionError("nothing raised")
"""


def run(script, **parts):
    code = textwrap.dedent(script).format(**parts)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stderr


def test_what_filters_only_name_is_not_imported():
    """As torch, which filters a warning of its own."""
    body = "from tests.backends.later_imported import Loud; warnings.simplefilter('ignore', Loud)"
    run(
        SCRIPT,
        body=body,
        rest="assert env.call('loaded', 'tests.backends.later_imported') == (False, False)",
    )


def test_a_category_of_the_script_itself_holds_in_its_workers():
    assert "from the step" in run(SCRIPT, body="", rest="env.step([0, 0])")
    ignored = "warnings.filterwarnings('ignore', category=Mine)"
    assert "from the step" not in run(SCRIPT, body=ignored, rest="env.step([0, 0])")


def test_a_category_that_is_imported_with_the_environment_holds():
    """By an id, so that nothing of it is imported before the environment is made."""
    run(LATER)


def test_filters_come_back_in_their_order():
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.filterwarnings("ignore", "some", DeprecationWarning, "a.b", 3)
        warnings.simplefilter("error", pytest.PytestWarning)
        before = list(warnings.filters)
        sent = filter_names(before)
        assert all(isinstance(category, tuple) for _, _, category, *_ in sent)
        warnings.resetwarnings()
        gone = ("ignore", None, ("no.such.module", "Warning_"), None, 0)
        assert set_filters([sent[0], gone, *sent[1:]]) == [gone]
        assert warnings.filters == before
