import os
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.sandbox import people


@pytest.fixture(scope="session")
def everybody():
    """The people tests run programs as: root and an ordinary user, or only the ordinary user who runs the tests."""
    me = people.myself()
    if os.geteuid() != 0:
        yield {"ordinary": me}
        return
    # Not in the suite's own temp directory: another user could not get there.
    folder = Path(tempfile.mkdtemp(prefix="toolsd-people-", dir=os.environ["PYTEST_DEBUG_TEMPROOT"]))
    folder.chmod(0o755)
    other = people.ordinary(str(folder))
    yield {"root": me} | ({"ordinary": other} if other else {})
    shutil.rmtree(folder)


@pytest.fixture(params=["root", "ordinary"])
def person(request, everybody):
    if request.param not in everybody:
        pytest.skip(f"this run cannot start a program as {request.param}")
    return everybody[request.param]
