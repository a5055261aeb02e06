"""Pictures: one function a figure, from data to a matplotlib Figure and its alt text.

No function here runs an engine, but for those of `gallery`, which draws all figures anew.
matplotlib (the `lessons` extra) is imported on first use.
"""
