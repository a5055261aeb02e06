"""Every figure of the course, drawn anew from engine runs and recorded data.

The functions of `nanoengine.viz` draw what they are given; here is what they are given.
"""
