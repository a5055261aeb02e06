"""The classroom model: a small real Qwen3 that ships with the package, and how it was made.

Only `classroom_folder` and its checks are imported here; training needs the `fetch` extra.
"""

from .folder import ClassroomModelError, classroom_folder, verify_folder

__all__ = ["ClassroomModelError", "classroom_folder", "verify_folder"]
