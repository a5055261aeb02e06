"""The grading server ends with the tests of the course."""

from collections.abc import Iterator

import pytest

from nanoengine.course.grading import grading_session


@pytest.fixture(autouse=True, scope="package")
def _no_server_is_left() -> Iterator[None]:
    with grading_session():
        yield
