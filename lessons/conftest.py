"""`pytest lessons/` grades the answers in lessons/work/; see nanoengine/course/pytest_plugin.py."""

from nanoengine.course.pytest_plugin import (  # noqa: F401  (pytest finds its hooks here)
    pytest_addoption,
    pytest_collect_file,
    pytest_terminal_summary,
    pytest_unconfigure,
)

collect_ignore_glob = ["work/*"]
