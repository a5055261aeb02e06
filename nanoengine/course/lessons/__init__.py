"""The lessons' entries: one module `lesson_NN.py` (and helpers beside it) a lesson."""
