"""Pictures: one function a figure, from data to a matplotlib Figure and its alt text.

No function here runs an engine; matplotlib (the `lessons` extra) is imported on first use.
"""
