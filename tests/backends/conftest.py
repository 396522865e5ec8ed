"""What tests of backends start from."""

import pytest

from tests.backends.ray_cluster import running


@pytest.fixture(scope="package")
def ray():
    """The cluster that all tests of Ray have but those of its nodes, which have several."""
    with running() as ray:
        yield ray
