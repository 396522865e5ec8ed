"""The conformance kit: the laws that every backend and wrapper must satisfy, and toy environments.

It has no dependencies beyond vecwrap's own, and works with any test runner:

    from vecwrap.testing import BACKEND_LAWS, check_wrapper, on

    @pytest.mark.parametrize("law", BACKEND_LAWS)
    def test_my_backend(law):
        law(on(MyRunner))

    def test_my_wrapper():
        check_wrapper(MyWrapper)
"""

from vecwrap.rows.compare import assert_same
from vecwrap.testing.backends import BACKEND_LAWS, check_backend
from vecwrap.testing.determinism import play_twice
from vecwrap.testing.drive import on, on_engines
from vecwrap.testing.toys import SPACES, ToyEnv, toy
from vecwrap.testing.wrappers import WRAPPER_LAWS, Subject, check_wrapper

__all__ = [
    "BACKEND_LAWS",
    "SPACES",
    "WRAPPER_LAWS",
    "Subject",
    "ToyEnv",
    "assert_same",
    "check_backend",
    "check_wrapper",
    "on",
    "on_engines",
    "play_twice",
    "toy",
]
